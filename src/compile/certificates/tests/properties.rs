//! Whatever arrives, in whatever order.

use proptest::prelude::*;

use super::*;

/// Six Ingresses that claim one host, some with the same age, some with nothing to give.
fn six() -> Vec<(Ingress, Option<Arc<KeyPair>>)> {
    let hosts: &[&str] = &["www.foo.test"];
    let of = |n: u64, name: &str, created, pair| (ingress(name, created, hosts, &[(hosts, "s")]), pair, n);
    let usable = |n| Some(pair(n, hosts));
    let all = [
        of(1, "f/i", 1, None),
        of(2, "e/i", 2, Some(dated(2, hosts, NOW - 9, NOW - 1))),
        of(3, "d/i", 3, usable(3)),
        of(4, "c/i", 3, usable(4)),
        of(5, "b/i", 4, usable(5)),
        of(6, "a/i", 5, usable(6)),
    ];
    all.into_iter().map(|(ingress, pair, _)| (ingress, pair)).collect()
}

static SIX: LazyLock<Vec<(Ingress, Option<Arc<KeyPair>>)>> = LazyLock::new(six);

/// What can happen to a Secret that is no good certificate for the host.
static BAD: LazyLock<[ParsedPair; 4]> = LazyLock::new(|| {
    [
        None,
        Some(Err(KeyPairError::KeyMismatch)),
        Some(Ok(pair(2, &["other.test"]))),
        Some(Ok(dated(3, &["www.foo.test"], NOW - 9, NOW - 1))),
    ]
});

static GOOD: LazyLock<Arc<KeyPair>> = LazyLock::new(|| pair(1, &["www.foo.test"]));

proptest! {
    #[test]
    fn nothing_that_arrives_takes_a_certificate_away(
        pem_pair: bool,
        events in prop::collection::vec((any::<bool>(), 0..GRACE, 0..BAD.len()), 1..10),
    ) {
        let origin = if pem_pair { SecretOrigin::PemPair } else { SecretOrigin::Object };
        let mut world = World::new("www.foo.test");
        world.any_secret("s", origin, Some(Ok(GOOD.clone())));
        if !pem_pair {
            world.ingress("i", 1, &[(&["www.foo.test"], "s")]);
            world.ingress("younger", 2, &[(&["www.foo.test"], "missing")]);
        }
        world.compile();
        for (deleted, seconds, bad) in events {
            if deleted {
                let outcome = world.delete(Kind::Secret, "s").compile();
                prop_assert_eq!(serials(outcome.certificates.as_ref()), ["01"]);
            }
            // A PEM pair with other names is meant for other hosts.
            let bad = if pem_pair { bad % 2 } else { bad };
            let outcome = world.after(seconds).any_secret("s", origin, BAD[bad].clone()).compile();
            prop_assert_eq!(serials(outcome.certificates.as_ref()), ["01"]);
        }
    }

    #[test]
    fn any_order_of_arrival_has_the_same_winner(
        order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut world = World::new("www.foo.test");
        for event in order {
            let (ingress, pair) = &SIX[event % 6];
            match pair {
                _ if event < 6 => {
                    world.put(Object::Ingress(ingress.clone()));
                }
                Some(pair) => {
                    let name = format!("{}/s", ingress.metadata.name.namespace);
                    world.secret(&name, pair);
                }
                None => {}
            }
            world.compile();
        }
        // The oldest has no Secret, the next an expired one; of two of one age the first by name wins.
        world.expect(&["04"], &["HostConflict", "HostConflict", "HostConflict", "HostConflict", "SecretNotFound"]);
    }
}
