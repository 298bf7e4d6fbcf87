use super::*;
use crate::settings::schema::field;

fn of(key: &str, value: &str) -> Option<Treatment> {
    treatment(key, &Raw::Text(value.into()))
}

#[test]
fn no_key_of_ours_is_listed() {
    for (key, _) in REFUSED.iter().chain(NO_EFFECT) {
        assert!(field(key).is_none(), "{key}");
        let prefix = key.strip_suffix('*');
        let hidden = crate::settings::schema::FIELDS
            .iter()
            .find(|field| prefix.is_some_and(|p| field.key.starts_with(p)));
        assert!(hidden.is_none(), "{key} would hide {hidden:?}");
    }
}

#[test]
fn nothing_is_both_refused_and_without_effect() {
    for (key, _) in REFUSED {
        assert!(matches!(of(key, "x"), Some(Treatment::Refused(_))), "{key}");
        assert!(matches!(of(key, "false"), Some(Treatment::NoEffect(_))), "{key}");
        assert!(matches!(of(key, ""), Some(Treatment::NoEffect(_))), "{key}");
    }
}

#[test]
fn families_of_keys_are_recognised() {
    assert!(matches!(of("geoip2-autoreload-in-minutes", "1"), Some(Treatment::NoEffect(_))));
    assert!(matches!(of("otel-sampler-ratio", "1"), Some(Treatment::NoEffect(_))));
    assert!(matches!(of("global-auth-signin", "x"), Some(Treatment::NoEffect(_))));
    assert!(matches!(of("global-auth-url", "http://x"), Some(Treatment::Refused(_))));
    assert_eq!(of("geopi", "1"), None);
}

#[test]
fn other_names_for_our_settings_are_translated() {
    let same = |key, value: &str| Some(Treatment::SameAs(key, Raw::Text(value.into())));
    assert_eq!(of("disable-access-log", "true"), same("access-log", "false"));
    assert_eq!(of("error-log-level", "crit"), same("log-level", "error"));
    assert_eq!(of("error-log-level", "loud"), None);
}
