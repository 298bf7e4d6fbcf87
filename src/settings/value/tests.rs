use proptest::prelude::*;

use super::*;
use crate::settings::choices::{LogLevel, TlsVersion};

fn parse<T: Value>(text: &str, unit: Unit) -> Result<T, Invalid> {
    T::parse(&Raw::Text(text.into()), unit)
}

#[test]
fn durations() {
    let millis = |text| parse::<Duration>(text, Unit::Time).ok().map(|duration| duration.as_millis());
    assert_eq!(millis("500ms"), Some(500));
    assert_eq!(millis("6s"), Some(6_000));
    assert_eq!(millis("1m"), Some(60_000));
    assert_eq!(millis("2h"), Some(7_200_000));
    assert_eq!(millis("7d"), Some(604_800_000));
    assert_eq!(millis("1h30m"), Some(5_400_000));
    assert_eq!(millis("1h 30m"), Some(5_400_000));
    assert_eq!(millis("60"), Some(60_000));
    assert_eq!(millis(" 60 "), Some(60_000));
    assert_eq!(millis("0"), Some(0));
    for bad in
        ["", "s", "6 s", "6y", "-1s", "1.5s", "6s!", "s6", "1h30", "18446744073709551615", "9999999999h"]
    {
        assert_eq!(millis(bad), None, "{bad}");
    }
}

/// Deadlines are made by adding to the clock, which must not overflow.
#[test]
fn a_duration_longer_than_a_year_is_refused() {
    assert!(parse::<Duration>("366d", Unit::Time).is_ok());
    assert!(parse::<Duration>("366d1s", Unit::Time).is_err());
    assert!(parse::<Duration>("31622401", Unit::Time).is_err());
}

#[test]
fn sizes() {
    let size = |text| parse::<u64>(text, Unit::Bytes).ok();
    assert_eq!(size("512"), Some(512));
    assert_eq!(size("8k"), Some(8 << 10));
    assert_eq!(size("1M"), Some(1 << 20));
    assert_eq!(size("2g"), Some(2 << 30));
    for bad in ["", "k", "-1", "1.5m", "1mb", "1 m", "1ü", "18446744073709551615k"] {
        assert_eq!(size(bad), None, "{bad}");
    }
    assert_eq!(parse("0", Unit::Bytes), Ok(None::<u64>));
    assert_eq!(parse("1m", Unit::Bytes), Ok(Some(1_u64 << 20)));
}

#[test]
fn booleans_are_those_of_kubernetes_tools() {
    assert_eq!(parse("true", Unit::None), Ok(true));
    assert_eq!(parse("F", Unit::None), Ok(false));
    let error = parse::<bool>("yes", Unit::None).unwrap_err();
    assert_eq!(error.to_string(), "\"yes\" is not true or false");
}

#[test]
fn lists_take_commas_spaces_and_yaml() {
    let expected = vec![TlsVersion::Tls12, TlsVersion::Tls13];
    for text in ["TLSv1.2 TLSv1.3", "TLSv1.2,TLSv1.3", " TLSv1.2 ,\n tlsv1.3, "] {
        assert_eq!(parse(text, Unit::None), Ok(expected.clone()), "{text}");
    }
    assert_eq!(Vec::parse(&Raw::List(vec!["TLSv1.2".into(), "TLSv1.3".into()]), Unit::None), Ok(expected));
    let error = parse::<Vec<TlsVersion>>("TLSv1.1 TLSv1.2", Unit::None).unwrap_err();
    assert_eq!(error.to_string(), "\"TLSv1.1\" is not one of TLSv1.2, TLSv1.3");
}

#[test]
fn openssl_names_take_colons_and_auto() {
    let names = |text| parse::<Vec<String>>(text, Unit::OpenSslNames).unwrap();
    assert_eq!(names("X25519:P-256"), ["X25519", "P-256"]);
    assert_eq!(names("X25519 P-256"), ["X25519", "P-256"]);
    assert_eq!(names("auto"), [""; 0]);
}

#[test]
fn paths_may_hold_spaces() {
    let paths = parse::<Vec<PathBuf>>("/my files,/other", Unit::None).unwrap();
    assert_eq!(paths, [PathBuf::from("/my files"), PathBuf::from("/other")]);
}

#[test]
fn networks_lose_their_host_bits_and_addresses_are_networks_of_one() {
    let networks = parse::<Vec<IpNet>>("10.1.2.3/8 192.0.2.1 2001:db8::1", Unit::None).unwrap();
    let written: Vec<_> = networks.iter().map(IpNet::to_string).collect();
    assert_eq!(written, ["10.0.0.0/8", "192.0.2.1/32", "2001:db8::1/128"]);
    assert!(parse::<Vec<IpNet>>("10.0.0.0/33", Unit::None).is_err());
}

#[test]
fn addresses_may_stand_in_brackets() {
    assert_eq!(parse("[::1]", Unit::None), Ok("::1".parse::<IpAddr>().unwrap()));
    assert!(parse::<IpAddr>("localhost", Unit::None).is_err());
}

#[test]
fn object_names_need_both_parts() {
    assert_eq!(parse("shop/tls", Unit::None), Ok(ObjectName::new("shop", "tls")));
    for bad in ["tls", "/tls", "shop/", "shop/a/b", "Shop/tls", "shop/../x y"] {
        assert!(parse::<ObjectName>(bad, Unit::None).is_err(), "{bad}");
    }
}

#[test]
fn maps_take_pairs_and_yaml() {
    let expected = BTreeMap::from([("http://a".to_owned(), "http://b?c=d".to_owned())]);
    assert_eq!(parse("http://a=http://b?c=d", Unit::None), Ok(expected.clone()));
    assert_eq!(Value::parse(&Raw::Map(expected.clone()), Unit::None), Ok(expected));
    assert!(parse::<BTreeMap<String, String>>("http://a", Unit::None).is_err());
}

#[test]
fn a_list_is_no_scalar_and_a_map_no_list() {
    let list = Raw::List(vec!["1".into(), "2".into()]);
    let error = u16::parse(&list, Unit::None).unwrap_err();
    assert_eq!(error.to_string(), "\"[1, 2]\" is not a whole number from 0 to 65535");
    assert!(Vec::<String>::parse(&Raw::Map(BTreeMap::new()), Unit::None).is_err());
}

#[test]
fn choices_are_read_in_any_case() {
    assert_eq!(parse("WARN", Unit::None), Ok(LogLevel::Warn));
    let error = parse::<LogLevel>("loud", Unit::None).unwrap_err();
    assert_eq!(error.to_string(), "\"loud\" is not one of error, warn, info, debug, trace");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,24}") {
        for unit in [Unit::None, Unit::Time, Unit::Bytes, Unit::OpenSslNames] {
            let _ = parse::<Duration>(&text, unit);
            let _ = parse::<u64>(&text, unit);
            let _ = parse::<Option<u64>>(&text, unit);
            let _ = parse::<Vec<IpNet>>(&text, unit);
            let _ = parse::<ObjectName>(&text, unit);
            let _ = parse::<BTreeMap<String, String>>(&text, unit);
        }
    }

    #[test]
    fn durations_read_back(millis in 0..31_622_400_000_u64) {
        let duration = Duration::from_millis(millis);
        prop_assert_eq!(parse(&format_duration(duration), Unit::Time), Ok(duration));
    }

    #[test]
    fn sizes_read_back(size: u64) {
        prop_assert_eq!(parse(&format_size(size), Unit::Bytes), Ok(size));
    }
}
