use proptest::prelude::*;

use super::*;

#[test]
fn a_ticket_survives_two_rotations_and_not_the_third() {
    let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
    let ticket = tickets.encrypt(b"session").unwrap();
    for rotation in 0..3 {
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "after {rotation} rotations");
        tickets.rotate().unwrap();
    }
    assert_eq!(tickets.decrypt(&ticket), None);
}

#[test]
fn the_next_generation_resumes_what_this_one_began() {
    let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
    let old = tickets.encrypt(b"old").unwrap();
    tickets.rotate().unwrap();
    let new = tickets.encrypt(b"new").unwrap();

    let successor = Tickets::new(Duration::from_secs(600)).unwrap();
    successor.take_over(&tickets.keys_for_successor());
    assert_eq!(successor.decrypt(&old).as_deref(), Some(&b"old"[..]));
    assert_eq!(successor.decrypt(&new).as_deref(), Some(&b"new"[..]));
    // And the other way round, for a client that meets the old one once more.
    let ticket = successor.encrypt(b"back").unwrap();
    assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"back"[..]));
}

#[test]
fn keys_that_cannot_be_read_leave_those_there_are() {
    let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
    let ticket = tickets.encrypt(b"session").unwrap();
    for keys in ["", "?", "c2hvcnQ="] {
        tickets.take_over(keys);
        assert_eq!(tickets.decrypt(&ticket).as_deref(), Some(&b"session"[..]), "{keys:?}");
    }
}

#[test]
fn a_changed_ticket_is_refused_wherever_it_was_changed() {
    let tickets = Tickets::new(Duration::from_secs(600)).unwrap();
    let ticket = tickets.encrypt(b"session").unwrap();
    for at in 0..ticket.len() {
        let mut forged = ticket.clone();
        forged[at] ^= 1;
        assert_eq!(tickets.decrypt(&forged), None, "byte {at}");
        assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
    }
}

fn file(seed: u8, length: u8) -> Vec<u8> {
    (0..length).map(|at| at.wrapping_mul(37) ^ seed).collect()
}

fn shared(seeds: &[u8]) -> SharedKeys {
    seeds.iter().map(|seed| Arc::new(TicketKey::parse(&file(*seed, 80)).unwrap())).collect()
}

#[test]
fn replicas_with_the_same_keys_resume_each_others_sessions() {
    let replicas = [(); 2].map(|()| Tickets::new(Duration::from_secs(600)).unwrap());
    let own = replicas[0].encrypt(b"own").unwrap();
    assert_eq!(replicas[1].decrypt(&own), None, "not before they share anything");
    for replica in &replicas {
        assert!(replica.share(&shared(&[1])));
        assert!(!replica.share(&shared(&[1])), "nothing new");
    }
    let first = replicas[0].encrypt(b"first").unwrap();
    assert_eq!(replicas[1].decrypt(&first).as_deref(), Some(&b"first"[..]));

    // One has the next key already, the other not yet.
    assert!(replicas[0].share(&shared(&[2, 1])));
    let second = replicas[0].encrypt(b"second").unwrap();
    assert_eq!(replicas[0].decrypt(&first).as_deref(), Some(&b"first"[..]));
    assert_eq!(replicas[1].decrypt(&second), None, "a full handshake");
    assert!(replicas[1].share(&shared(&[2, 1])));
    assert_eq!(replicas[1].decrypt(&second).as_deref(), Some(&b"second"[..]));
    assert!(replicas[1].share(&shared(&[3, 2])));
    assert_eq!(replicas[1].decrypt(&first), None, "the key is gone");
    assert!(!replicas[1].share(&shared(&[])), "no keys are no change");
    assert!(replicas[1].decrypt(&second).is_some());
}

#[test]
fn a_key_file_has_80_or_48_bytes_as_they_are_or_in_base64() {
    for length in [80, 48] {
        let bytes = file(7, length);
        let key = TicketKey::parse(&bytes).unwrap();
        let text = BASE64.encode(&bytes);
        let (one, two) = text.split_at(60);
        for text in [text.clone(), format!("{text}\n"), format!("{one}\n{two}\n")] {
            let same = TicketKey::parse(text.as_bytes()).unwrap();
            assert_eq!((same.name, &*same.secret), (key.name, &*key.secret), "{text:?}");
        }
        assert!(
            !bytes.windows(4).any(|part| key.name.starts_with(part)),
            "the name says nothing of the file"
        );
        let other = TicketKey::parse(&file(8, length)).unwrap();
        assert!(other.name != key.name && other.secret != key.secret);
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_ne!(TicketKey::parse(&changed).unwrap().name, key.name);
    }
    let error = |bytes: &[u8]| TicketKey::parse(bytes).unwrap_err();
    for length in [0, 16, 47, 49, 64, 79, 81, 250] {
        assert!(matches!(error(&file(7, length)), TicketKeyError::Length(_)), "{length}");
    }
    assert_eq!(error(BASE64.encode(file(7, 32)).as_bytes()), TicketKeyError::Length(32));
    assert_eq!(error(&[0; 80]), TicketKeyError::NotRandom);
    assert_eq!(error(BASE64.encode([1; 48]).as_bytes()), TicketKeyError::NotRandom);
}

#[test]
fn nothing_prints_a_key() {
    let key = TicketKey::parse(&file(7, 80)).unwrap();
    assert_eq!(format!("{key:?}"), "TicketKey { .. }");
    let tickets = Tickets::new(Duration::ZERO).unwrap();
    assert_eq!(format!("{tickets:?}"), "Tickets { .. }");
}

proptest! {
    #[test]
    fn any_bytes_are_a_key_file_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = TicketKey::parse(&bytes);
    }

    #[test]
    fn foreign_bytes_are_no_ticket(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(Tickets::new(Duration::ZERO).unwrap().decrypt(&bytes), None);
    }
}
