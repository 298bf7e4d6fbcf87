use proptest::prelude::*;

use super::*;

fn id() -> SpiffeId {
    SpiffeId::new("cluster.local", "shop", "web").unwrap()
}

#[test]
fn names_stay_a_list() {
    for bad in ["", "a,b", "a b", "A.example", "*.example", "a..b", "-a", "a-", "ä.example", "a\0b", "a/b"] {
        assert_eq!(WorkloadNames::new(id(), vec![bad.to_owned()]), Err(NameError::Dns(bad.to_owned())));
    }
    let names = WorkloadNames::new(id(), vec!["web.shop.svc".to_owned(), "web".to_owned()]).unwrap();
    assert_eq!(names.to_subject_names().len(), 3);
}

#[test]
fn custom_names_add_up_and_faulty_entries_are_reported() {
    let (names, faults) = CustomDnsNames::parse(
        "web.shop:a.example, web.shop:b.example,db.shop:c.example,bad,no:x,a.b:c:d,a.b:X",
    );
    assert_eq!(names.of("shop", "web"), ["a.example", "b.example"]);
    assert_eq!(names.of("shop", "db"), ["c.example"]);
    assert_eq!(names.of("other", "web"), [] as [&str; 0]);
    assert_eq!(faults.len(), 4);
}

#[test]
fn trust_domains_are_checked() {
    assert_eq!(trust_domain("").as_deref(), Ok("cluster.local"));
    assert_eq!(trust_domain("me@example.com").as_deref(), Ok("me.example.com"));
    assert!(trust_domain("Upper").is_err());
    assert!(trust_domain("a/b").is_err());
    assert!(trust_domain("a,b").is_err());
}

proptest! {
    #[test]
    fn any_list_gives_an_answer(list in ".{0,100}") {
        let _ = CustomDnsNames::parse(&list);
        let _ = trust_domain(&list);
        let _ = SpiffeId::parse(&list);
    }
}
