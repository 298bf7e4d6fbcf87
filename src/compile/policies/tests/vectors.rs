//! `tests/golden/vectors/policy.yaml`, through the reader of documents and the matcher.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vector {
    id: String,
    about: String,
    policies: Vec<Value>,
    connections: Vec<String>,
}

#[test]
fn decisions_are_as_the_vectors_say() {
    let text = include_str!("../../../../tests/golden/vectors/policy.yaml");
    let vectors: Vec<Vector> = serde_saphyr::from_str(text).unwrap();
    assert!(vectors.len() >= 48);
    for vector in vectors {
        let policies = vector.policies.iter().map(|policy| {
            Arc::new(document::from_value(policy).unwrap_or_else(|error| panic!("{}: {error}", vector.id)))
        });
        let workload = WorkloadPolicies::new(policies);
        for line in &vector.connections {
            let (peer, source, destination, port, allowed) = parse(line);
            let decision =
                workload.decide(&Connection { principal: peer.as_ref(), source, destination, port });
            assert_eq!(decision.allowed, allowed, "{}, {}: {line}: {decision}", vector.id, vector.about);
        }
    }
}

/// Reads `PEER[:PORT] [from ADDRESS] [to ADDRESS] => allow|DENY`.
fn parse(line: &str) -> (Option<SpiffeId>, IpAddr, IpAddr, u16, bool) {
    let (question, answer) = line.split_once(" => ").unwrap();
    let allowed = match answer {
        "allow" => true,
        "DENY" => false,
        other => panic!("{other}"),
    };
    let mut words = question.split(' ');
    let (peer, port) = match words.next().unwrap().split_once(':') {
        Some((peer, port)) => (peer, port.parse().unwrap()),
        None => (question.split(' ').next().unwrap(), 8080),
    };
    let (mut source, mut destination) = (ip("10.0.0.5"), ip("10.0.1.9"));
    while let Some(word) = words.next() {
        let address = ip(words.next().unwrap());
        match word {
            "from" => source = address,
            "to" => destination = address,
            other => panic!("{other}"),
        }
    }
    let peer = match peer {
        "anon" => None,
        "A" => Some(id("cluster.local/ns/app/sa/web")),
        "B" => Some(id("cluster.local/ns/other/sa/job")),
        "F" => Some(id("partner.example/ns/app/sa/web")),
        other => Some(id(other)),
    };
    (peer, source, destination, port, allowed)
}
