//! Documents of ready policies among manifests.

use super::reading::{names as names_of, read};
use super::*;

fn names(show: &Show) -> Vec<String> {
    show.store.ready_policies().in_force().map(|policy| policy.metadata.name.to_string()).collect()
}

#[tokio::test]
async fn one_without_a_name_leaves_the_others_of_its_file_and_those_that_it_may_be() {
    let file = "name: a\nscope: NAMESPACE\n---\nname: b\nnamespace: shop\nscope: NAMESPACE\n";
    let mut show = Show::start(|folder| fs::write(folder.join("a.yaml"), file).unwrap()).await;
    assert_eq!(names(&show), ["default/a", "shop/b"]);
    for name in ["", "name: [a]\n", "name: a/b\n", "name: a\nnamespace: A\n", "kind: Authorization\n"] {
        rename_into(&show.path("a.yaml"), &file.replacen("name: a\n", name, 1));
        show.until("the fault is told", |show| show.reasons() == ["InvalidName"]).await;
        assert_eq!(names(&show), ["default/a", "shop/b"], "{name:?}");
        rename_into(&show.path("a.yaml"), file);
        show.until("the repair", |show| show.reasons().is_empty()).await;
    }
    rename_into(&show.path("a.yaml"), "name: b\nnamespace: shop\n");
    show.until("one is gone", |show| names(show) == ["shop/b"]).await;
}

#[test]
fn a_document_says_nothing_of_another_kind() {
    let file = "name: a\nkind: Authorization\n---\nname: b\nkind: Other\n---\nname: c\napiVersion: v1\n---\n\
        \"@type\": type.googleapis.com/istio.security.Authorization\nname: d\n";
    let (events, findings) = read(|folder| fs::write(folder.join("a.yaml"), file).unwrap());
    assert_eq!(names_of(&events), ["a", "d"]);
    assert_eq!(findings.iter().map(|it| it.reason).collect::<Vec<_>>(), ["NotAnObject", "NotAnObject"]);
}
