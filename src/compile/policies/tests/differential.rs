//! A second evaluator, written on the JSON form of documents and as plainly as the semantics read, must agree
//! with the matcher everywhere.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;

/// What the naive evaluator says.
fn is_allowed(policies: &[Value], connection: &Connection<'_>) -> bool {
    let enforced = || policies.iter().filter(|policy| policy["dryRun"] != true);
    let (deny, allow): (Vec<&Value>, Vec<&Value>) = enforced().partition(|policy| policy["action"] == "DENY");
    !deny.iter().any(|policy| matches(policy, connection))
        && (allow.is_empty() || allow.iter().any(|policy| matches(policy, connection)))
}

fn matches(policy: &Value, connection: &Connection<'_>) -> bool {
    entries(&policy["groups"]).any(|group| {
        entries(&group["rules"]).all(|rule| {
            entries(&rule["matches"]).count() == 0
                || entries(&rule["matches"]).any(|one| match_holds(one, connection))
        })
    })
}

fn match_holds(one: &Value, connection: &Connection<'_>) -> bool {
    let peer = connection.principal;
    let is_text = |entry: &Value, text: &str| {
        let part = |name: &str| entry[name].as_str();
        part("exact").is_some_and(|exact| exact == text)
            || part("prefix").is_some_and(|prefix| text.starts_with(prefix))
            || part("suffix").is_some_and(|suffix| text.ends_with(suffix))
            || (entry.get("presence").is_some() && !text.is_empty())
    };
    let attribute = |name: &str, entry: &Value| match name {
        "principals" => peer.is_some_and(|peer| is_text(entry, &peer.to_string()["spiffe://".len()..])),
        "trustDomains" => peer.is_some_and(|peer| is_text(entry, peer.trust_domain())),
        "namespaces" => is_text(entry, peer.map_or("", |peer| peer.namespace())),
        "serviceAccounts" => peer.is_some_and(|peer| {
            entry["namespace"] == peer.namespace() && entry["serviceAccount"] == peer.service_account()
        }),
        "sourceIps" => in_block(entry, connection.source),
        "destinationIps" => in_block(entry, connection.destination),
        "destinationPorts" => *entry == json!(connection.port),
        other => panic!("{other}"),
    };
    let fields = one.as_object().unwrap();
    !fields.is_empty()
        && fields.iter().all(|(name, values)| match name.strip_prefix("not") {
            Some(name) => {
                let name = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
                entries(values).all(|entry| !attribute(&name, entry))
            }
            None => entries(values).any(|entry| attribute(name, entry)),
        })
}

/// Compares bit by bit.
fn in_block(entry: &Value, address: IpAddr) -> bool {
    use base64::Engine;
    let block = base64::prelude::BASE64_STANDARD.decode(entry["address"].as_str().unwrap()).unwrap();
    let address = match address.to_canonical() {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    let length = entry["length"].as_u64().unwrap_or(0) as usize;
    block.len() == address.len() && (0..length).all(|at| bit(&block, at) == bit(&address, at))
}

fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn identities() -> Vec<SpiffeId> {
    ["cluster.local/ns/foo/sa/a", "cluster.local/ns/bar/sa/b", "partner.example/ns/foo/sa/a", "td/ns/f/sa/a"]
        .map(id)
        .into()
}

fn addresses() -> Vec<IpAddr> {
    ["10.0.0.5", "10.0.1.9", "192.168.1.1", "::ffff:10.0.0.5", "2001:db8::7", "::1", "0.0.0.0"].map(ip).into()
}

/// Identity, source, destination and port.
pub(super) fn any_connection() -> impl Strategy<Value = (Option<SpiffeId>, IpAddr, IpAddr, u16)> {
    (option::of(select(identities())), select(addresses()), select(addresses()), select(vec![80, 8080, 9090]))
}

fn any_text() -> impl Strategy<Value = Value> {
    let text = select(vec![
        "",
        "foo",
        "f",
        "o",
        "bar",
        "cluster.local",
        "td",
        "td/ns/f/sa/a",
        "cluster.local/ns/foo/sa/a",
        "/sa/a",
        "cluster.",
    ]);
    (select(vec!["exact", "prefix", "suffix", "presence"]), text).prop_map(|(kind, text)| match kind {
        "presence" => json!({"presence": {}}),
        kind => json!({kind: text}),
    })
}

fn any_block() -> impl Strategy<Value = Value> {
    use base64::Engine;
    (select(addresses()), 0..=128u8).prop_map(|(address, length)| {
        let (bytes, longest) = match address.to_canonical() {
            IpAddr::V4(v4) => (v4.octets().to_vec(), 32),
            IpAddr::V6(v6) => (v6.octets().to_vec(), 128),
        };
        json!({"address": base64::prelude::BASE64_STANDARD.encode(bytes), "length": length.min(longest)})
    })
}

fn any_field() -> impl Strategy<Value = (String, Value)> {
    let texts = (select(vec!["principals", "namespaces", "trustDomains"]), vec(any_text(), 1..3));
    let blocks = (select(vec!["sourceIps", "destinationIps"]), vec(any_block(), 1..3));
    let ports = (Just("destinationPorts"), vec(select(vec![80u16, 8080, 9090]).prop_map(Value::from), 1..3));
    let account = (select(vec!["foo", "bar"]), select(vec!["a", "b"]))
        .prop_map(|(namespace, name)| json!({"namespace": namespace, "serviceAccount": name}));
    let accounts = (Just("serviceAccounts"), vec(account, 1..3));
    let negate = |name: &str| format!("not{}{}", name[..1].to_uppercase(), &name[1..]);
    (prop_oneof![texts, blocks, ports, accounts], any::<bool>()).prop_map(move |((name, values), negated)| {
        (if negated { negate(name) } else { name.to_owned() }, Value::from(values))
    })
}

pub(super) fn any_policy() -> impl Strategy<Value = Authorization> {
    let one = vec(any_field(), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect()));
    let rule = vec(one, 0..3).prop_map(|matches| json!({"matches": matches}));
    let group = vec(rule, 0..3).prop_map(|rules| json!({"rules": rules}));
    (vec(group, 0..3), select(vec!["ALLOW", "DENY"]), prop::bool::weighted(0.1)).prop_map(
        |(groups, action, dry_run)| {
            let document = json!({"name": "p", "action": action, "dryRun": dry_run, "groups": groups});
            document::from_value(&document).unwrap()
        },
    )
}

pub(super) fn any_workload() -> impl Strategy<Value = Vec<Authorization>> {
    vec(any_policy(), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_naive_evaluator_agrees(
        policies in any_workload(),
        (who, source, destination, port) in any_connection(),
    ) {
        let connection = Connection { principal: who.as_ref(), source, destination, port };
        let documents: Vec<Value> = policies.iter().map(document::to_value).collect();
        let decision = WorkloadPolicies::new(policies.into_iter().map(Arc::new)).decide(&connection).allowed;
        prop_assert_eq!(decision, is_allowed(&documents, &connection), "{}", Value::from(documents));
    }
}
