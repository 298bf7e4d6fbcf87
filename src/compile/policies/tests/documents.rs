//! Documents: what is read is what was written, and what cannot be read is refused.

use serde_json::json;

use super::*;

#[test]
fn unreadable_documents_are_refused() {
    let one = |condition: Value| json!({"name": "p", "groups": [{"rules": [{"matches": [condition]}]}]});
    let at = |field: &str| format!("groups[0].rules[0].matches[0].{field}");
    for (document, field) in [
        (json!([]), ""),
        (json!("text"), ""),
        (json!({}), "name"),
        (json!({"name": ""}), "name"),
        (json!({"name": 1}), "name"),
        (json!({"name": "p", "scope": "CLUSTER"}), "scope"),
        (json!({"name": "p", "scope": 3}), "scope"),
        (json!({"name": "p", "action": "AUDIT"}), "action"),
        (json!({"name": "p", "action": -1}), "action"),
        (json!({"name": "p", "dryRun": "yes"}), "dryRun"),
        (json!({"name": "p", "rules": []}), "rules"),
        (json!({"name": "p", "groups": {}}), "groups"),
        (json!({"name": "p", "groups": [{"matches": []}]}), "groups[0].matches"),
        (json!({"name": "p", "groups": [{"rules": [1]}]}), "groups[0].rules[0]"),
        (one(json!({"ports": [1]})), &at("ports")),
        (one(json!({"notsourceIps": []})), &at("notsourceIps")),
        (one(json!({"extensions": []})), &at("extensions")),
        (one(json!({"destinationPorts": [65616]})), &at("destinationPorts[0]")),
        (one(json!({"destinationPorts": [1.5]})), &at("destinationPorts[0]")),
        (one(json!({"destinationPorts": 80})), &at("destinationPorts")),
        (one(json!({"principals": [{}]})), &at("principals[0]")),
        (one(json!({"principals": ["a"]})), &at("principals[0]")),
        (one(json!({"principals": [{"exact": "a", "prefix": "b"}]})), &at("principals[0]")),
        (one(json!({"principals": [{"regex": "a"}]})), &at("principals[0].regex")),
        (one(json!({"principals": [{"presence": {"a": 1}}]})), &at("principals[0].presence.a")),
        (one(json!({"principals": [{"exact": 1}]})), &at("principals[0].exact")),
        (one(json!({"not_principals": [{"exact": "a"}], "notPrincipals": []})), &at("not_principals")),
        (one(json!({"serviceAccounts": [{"namespace": "a"}]})), &at("serviceAccounts[0]")),
        (one(json!({"sourceIps": [{}]})), &at("sourceIps[0].address")),
        (one(json!({"sourceIps": [{"address": "10.0.0.1", "length": 32}]})), &at("sourceIps[0].address")),
        (one(json!({"sourceIps": [{"address": "CgAA", "length": 24}]})), &at("sourceIps[0].address")),
        (one(json!({"sourceIps": [{"address": "CgAABQ==", "length": 33}]})), &at("sourceIps[0].length")),
        (one(json!({"sourceIps": [{"address": "CgAABQ==", "length": 288}]})), &at("sourceIps[0].length")),
        (one(json!({"sourceIps": [{"address": "CgAABQ==", "prefix": 8}]})), &at("sourceIps[0].prefix")),
    ] {
        let error = document::from_value(&document).expect_err(&document.to_string());
        assert_eq!(error.field, field, "{document}: {error}");
    }
}

#[test]
fn other_spellings_of_the_json_form_are_read() {
    let plain = json!({
        "name": "p", "scope": "WORKLOAD_SELECTOR", "action": "DENY", "dryRun": true,
        "groups": [{"rules": [{"matches": [{
            "destinationPorts": [80],
            "notServiceAccounts": [{"namespace": "a", "serviceAccount": "b"}],
            "sourceIps": [{"address": "CgAABQ==", "length": 24}],
        }]}]}],
    });
    let other = json!({
        "name": "p", "namespace": null, "scope": 2, "action": 1, "dry_run": true,
        "groups": [{"rules": [{"matches": [{
            "destination_ports": ["80"],
            "not_service_accounts": [{"namespace": "a", "service_account": "b"}],
            "source_ips": [{"address": "CgAABQ", "length": "24"}],
            "principals": [],
        }]}]}],
    });
    let policy = document::from_value(&other).unwrap();
    assert_eq!(policy, document::from_value(&plain).unwrap());
    assert_eq!(document::to_value(&policy), plain);
}

#[test]
fn text_that_yaml_takes_for_something_else_is_quoted() {
    for text in [
        "true",
        "No",
        "null",
        "~",
        "",
        "80",
        "-1",
        "0x1f",
        "1e3",
        "1.5",
        "1_000",
        "2024-01-01",
        "12:30:45",
        ".inf",
        "-.inf",
        ".nan",
        "a: b",
        "a #b",
        "a:",
        "- a",
        "-",
        "*",
        "&a",
        "!a",
        "'a'",
        "\"",
        "a\nb",
        " a",
        "a ",
        "ä",
        "\u{1}",
        "{}",
        "[a]",
        "|",
        ">",
        "%",
        "@a",
        "`",
        "a\\b",
        "=",
        "<<",
        "y",
        "plain",
        "a.b/c-d_e",
        "-suffix",
        ".local",
        "1a",
        "td/ns/a/sa/b",
        "spiffe://td",
        "10.0.0.0/8",
    ] {
        let policy =
            json!({"name": "p", "groups": [{"rules": [{"matches": [{"namespaces": [{"exact": text}]}]}]}]});
        let policy = document::from_value(&policy).unwrap();
        let yaml = document::to_yaml([&policy]);
        let read: Value = serde_saphyr::from_str(&yaml).unwrap_or_else(|error| panic!("{yaml}: {error}"));
        assert_eq!(document::from_value(&read).as_ref(), Ok(&policy), "{yaml}");
    }
}
