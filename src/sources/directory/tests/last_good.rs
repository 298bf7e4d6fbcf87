//! What is there and cannot be used is not taken for deleted.

use std::fs;

use super::{Show, config_map, rename_into};
use crate::diagnostics::{ObjectRef, Severity};
use crate::store::objects::{Kind, ObjectName};

const INGRESS: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
spec:
  rules:
    - host: shop.test
      http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

impl Show {
    fn host(&self) -> Option<String> {
        let ingress = self.store.ingress(&ObjectName::new("default", "shop"))?;
        ingress.rules.first()?.host.clone()
    }

    /// Waits for the one finding, and says which object and field it names and what it says.
    async fn until_finding(&mut self, reason: &str) -> (Option<ObjectRef>, String, String) {
        self.until(reason, |show| show.reasons().contains(&reason)).await;
        let mut all = self.findings.values().flatten();
        let finding = all.find(|it| it.reason == reason).unwrap();
        assert_eq!(finding.severity, Severity::Error);
        (finding.object.clone(), finding.field.clone(), finding.message.clone())
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_used_stays_as_it_was() {
    let mut show = Show::start(|folder| {
        let text = INGRESS.to_owned() + "---\n" + &config_map("beside", "1");
        fs::write(folder.join("a.yaml"), text).unwrap();
    })
    .await;
    let shop = ObjectRef::new(Kind::Ingress, &ObjectName::new("default", "shop"));
    let (without_spec, _) = INGRESS.split_once("spec:").unwrap();
    let cases = [
        ("NoUsableRule", "spec.rules", INGRESS.replace("shop.test", "shop..test")),
        ("UnsupportedVersion", "apiVersion", INGRESS.replace("io/v1", "io/v1beta1")),
        ("MissingField", "", without_spec.to_owned()),
        ("EmptyIngress", "spec", without_spec.to_owned() + "spec:\n  rules:\n"),
    ];
    for (reason, field, text) in cases {
        show.log.clear();
        rename_into(&show.path("a.yaml"), &text);
        let (object, named, message) = show.until_finding(reason).await;
        assert_eq!((object.as_ref(), &*named), (Some(&shop), field));
        assert!(message.ends_with("; the object stays as it was, where it was there before"), "{message}");
        assert_eq!(show.host().as_deref(), Some("shop.test"), "{reason}");
        assert_eq!(show.data("beside"), Some("1"), "it may be in what was cut off");
        rename_into(&show.path("a.yaml"), &(INGRESS.to_owned() + "---\n" + &config_map("beside", "1")));
        show.until("the repair", |show| show.reasons().is_empty()).await;
        assert!(show.log.is_empty(), "{:?}", show.log);
    }
    rename_into(&show.path("a.yaml"), &INGRESS.replace("shop.test", "new.test"));
    show.until("a change", |show| show.host().as_deref() == Some("new.test")).await;
    assert_eq!(show.data("beside"), None, "without a fault what is not there any more is gone");
    fs::remove_file(show.path("a.yaml")).unwrap();
    show.until("the end", |show| show.host().is_none()).await;
}

#[tokio::test]
async fn where_it_cannot_be_told_which_object_it_is_all_of_the_file_stay() {
    let both = config_map("a", "1") + "---\n" + &config_map("b", "1");
    let mut show = Show::start(|folder| fs::write(folder.join("a.yaml"), &both).unwrap()).await;
    let cases = [
        ("MissingField", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n"),
        ("InvalidName", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n"),
        ("NotAnObject", "tls.crt: one\ntls.key: other\n"),
        ("NotAnObject", "apiVersion: v1\nkind: List\nitems:\n"),
    ];
    for (reason, text) in cases {
        show.log.clear();
        rename_into(&show.path("a.yaml"), text);
        show.until_finding(reason).await;
        assert_eq!((show.data("a"), show.data("b")), (Some("1"), Some("1")), "{text}");
        rename_into(&show.path("a.yaml"), &both);
        show.until("the repair", |show| show.reasons().is_empty()).await;
        assert!(show.log.is_empty(), "{:?}", show.log);
    }
    rename_into(&show.path("a.yaml"), &config_map("b", "1"));
    show.until("the removal", |show| show.data("a").is_none()).await;
}

#[tokio::test]
async fn an_empty_list_takes_its_objects_along() {
    let list = "apiVersion: v1\nkind: List\nitems:\n  - {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {value: x}}\n";
    let mut show = Show::start(|folder| fs::write(folder.join("a.yaml"), list).unwrap()).await;
    assert_eq!(show.data("a"), Some("x"));
    rename_into(&show.path("a.yaml"), "apiVersion: v1\nkind: List\nitems: []\n");
    show.until("the removal", |show| show.data("a").is_none() && show.reasons().is_empty()).await;
}
