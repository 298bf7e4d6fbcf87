//! Session ticket keys that replicas share.

use std::collections::BTreeMap;

use super::*;
use crate::store::objects::{Metadata, Secret, SecretOrigin, TICKET_KEYS_TYPE};
use crate::tls::tickets::{SharedKeys, TicketKey};

fn keys(seeds: &[u8]) -> SharedKeys {
    let file = |seed: u8| (0..80).map(|at: u8| at ^ seed).collect::<Vec<_>>();
    seeds.iter().map(|seed| Arc::new(TicketKey::parse(&file(*seed)).unwrap())).collect()
}

fn secret(ticket_keys: Option<SharedKeys>) -> Object {
    let (labels, annotations) = (BTreeMap::new(), BTreeMap::new());
    Object::Secret(Secret {
        metadata: Metadata { name: ObjectName::new("edge", "tickets"), created: None, labels, annotations },
        kind: TICKET_KEYS_TYPE.into(),
        origin: SecretOrigin::Object,
        pair: None,
        fields: Default::default(),
        ticket_keys,
        authorities: None,
        users: Default::default(),
        client_ca: None,
    })
}

fn world(objects: impl IntoIterator<Item = Object>) -> World {
    let ssl_session_ticket_secret = Some(ObjectName::new("edge", "tickets"));
    World::with(Settings { ssl_session_ticket_secret, ..Settings::default() }, objects)
}

fn in_use(world: &World, keys: &SharedKeys) -> bool {
    world.compiled.ticket_keys.as_ref().is_some_and(|in_use| Arc::ptr_eq(in_use, keys))
}

#[test]
fn keys_come_from_the_secret_that_the_setting_names_and_from_no_other() {
    let first = keys(&[1]);
    let mut world = World::new([secret(Some(first.clone()))]);
    assert!(world.compiled.ticket_keys.is_none() && world.reasons().is_empty(), "nothing names it");
    world.set(Settings {
        ssl_session_ticket_secret: Some(ObjectName::new("edge", "tickets")),
        ..Settings::default()
    });
    assert!(in_use(&world, &first) && world.reasons().is_empty());
    world.set(Settings::default());
    assert!(world.compiled.ticket_keys.is_none());
}

#[test]
fn a_secret_that_is_missing_or_of_no_use_leaves_the_last_good_keys() {
    let mut world = world([]);
    assert!(world.compiled.ticket_keys.is_none());
    assert_eq!(world.reasons(), [("SecretNotFound", "tickets".to_owned())]);

    let (first, second) = (keys(&[1]), keys(&[2, 1]));
    world.apply([secret(Some(first.clone()))]);
    assert!(in_use(&world, &first) && world.reasons().is_empty());
    for (secret, reason) in [(secret(None), "WrongSecretType"), (secret(Some(keys(&[]))), "NoTicketKeys")] {
        world.apply([secret]);
        assert!(in_use(&world, &first), "{reason}");
        assert_eq!(world.reasons(), [(reason, "tickets".to_owned())]);
    }
    world.delete(Kind::Secret, "edge", "tickets");
    assert!(in_use(&world, &first));
    assert_eq!(world.reasons(), [("SecretNotFound", "tickets".to_owned())]);
    assert!(world.findings()[0].contains("last good"), "{:?}", world.findings());

    world.apply([secret(Some(second.clone()))]);
    assert!(in_use(&world, &second) && world.reasons().is_empty());
}
