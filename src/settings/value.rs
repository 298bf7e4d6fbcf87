//! How the value of a setting is read and written, the same for flags, environment, file and ConfigMap.
//!
//! A value arrives as [`Raw`] text, list or map and becomes a field of `Settings`; the [`Unit`] of the field
//! says how numbers are meant. What is written reads back as the same value.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use super::field::Unit;
use crate::names::object::ObjectName;
use crate::names::responder::Target;

/// A value as it was given, before its field makes sense of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Raw {
    /// One scalar; null is the empty text.
    Text(String),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::List(items) => write!(f, "[{}]", items.join(", ")),
            Self::Map(entries) => {
                let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
        }
    }
}

/// A value that its field can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {expected}")]
pub struct Invalid {
    pub value: String,
    /// What a valid value looks like, as "a port, 0 to 65535".
    pub expected: String,
}

/// The type of a field.
pub trait Value: Sized {
    fn parse(raw: &Raw, unit: Unit) -> Result<Self, Invalid>;
    fn to_json(&self, unit: Unit) -> Json;
}

/// A value that is one word or number.
pub trait Scalar: Sized {
    /// What separates several of them in one text.
    const SEPARATORS: &[char] = &[',', ' ', '\t', '\n'];

    fn read(text: &str, unit: Unit) -> Option<Self>;
    fn write(&self, unit: Unit) -> Json;
    fn expected(unit: Unit) -> String;

    /// A text that is none, as an error may repeat it.
    fn shown(text: &str) -> String {
        text.to_owned()
    }
}

impl<T: Scalar> Value for T {
    fn parse(raw: &Raw, unit: Unit) -> Result<Self, Invalid> {
        match raw {
            Raw::Text(text) => read(text, unit),
            Raw::List(_) | Raw::Map(_) => {
                Err(Invalid { value: raw.to_string(), expected: T::expected(unit) })
            }
        }
    }

    fn to_json(&self, unit: Unit) -> Json {
        self.write(unit)
    }
}

/// Empty is none, and so is a size of 0: nginx writes "no limit" that way.
impl<T: Scalar> Value for Option<T> {
    fn parse(raw: &Raw, unit: Unit) -> Result<Self, Invalid> {
        match raw {
            Raw::Text(text) if text.trim().is_empty() || (unit == Unit::Bytes && text.trim() == "0") => {
                Ok(None)
            }
            raw => T::parse(raw, unit).map(Some),
        }
    }

    fn to_json(&self, unit: Unit) -> Json {
        match self {
            Some(value) => value.write(unit),
            None if unit == Unit::Bytes => Json::from("0"),
            None => Json::Null,
        }
    }
}

impl<T: Scalar> Value for Vec<T> {
    fn parse(raw: &Raw, unit: Unit) -> Result<Self, Invalid> {
        match raw {
            // What ingress-nginx calls the default curves.
            Raw::Text(text) if unit == Unit::OpenSslNames && text == "auto" => Ok(Self::new()),
            Raw::Text(text) => split(text, T::SEPARATORS, unit).map(|item| read(item, unit)).collect(),
            Raw::List(items) => items.iter().map(|item| read(item, unit)).collect(),
            Raw::Map(_) => Err(Invalid { value: raw.to_string(), expected: "a list".into() }),
        }
    }

    fn to_json(&self, unit: Unit) -> Json {
        self.iter().map(|item| item.write(unit)).collect()
    }
}

impl<T: Scalar> Value for BTreeMap<String, T> {
    fn parse(raw: &Raw, unit: Unit) -> Result<Self, Invalid> {
        let entry = |item: &str| match item.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), read(value, unit)?)),
            _ => Err(Invalid { value: T::shown(item), expected: "an entry such as key=value".into() }),
        };
        match raw {
            Raw::Text(text) => split(text, T::SEPARATORS, unit).map(entry).collect(),
            Raw::List(items) => items.iter().map(|item| entry(item)).collect(),
            Raw::Map(entries) => {
                entries.iter().map(|(key, value)| Ok((key.clone(), read(value, unit)?))).collect()
            }
        }
    }

    fn to_json(&self, unit: Unit) -> Json {
        self.iter().map(|(key, value)| (key.clone(), value.write(unit))).collect()
    }
}

fn read<T: Scalar>(text: &str, unit: Unit) -> Result<T, Invalid> {
    T::read(text.trim(), unit).ok_or_else(|| Invalid { value: T::shown(text), expected: T::expected(unit) })
}

fn split<'a>(text: &'a str, separators: &'a [char], unit: Unit) -> impl Iterator<Item = &'a str> {
    text.split(move |c| separators.contains(&c) || (unit == Unit::OpenSslNames && c == ':'))
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// The words that Kubernetes tools take for booleans.
impl Scalar for bool {
    fn read(text: &str, _: Unit) -> Option<Self> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
            _ => None,
        }
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(*self)
    }

    fn expected(_: Unit) -> String {
        "true or false".into()
    }
}

macro_rules! number {
    ($($type:ty),+) => {$(
        impl Scalar for $type {
            fn read(text: &str, unit: Unit) -> Option<Self> {
                match unit {
                    Unit::Bytes => parse_size(text)?.try_into().ok(),
                    _ => text.parse().ok(),
                }
            }

            fn write(&self, unit: Unit) -> Json {
                match unit {
                    Unit::Bytes => Json::from(format_size(*self as u64)),
                    _ => Json::from(*self),
                }
            }

            fn expected(unit: Unit) -> String {
                match unit {
                    Unit::Bytes => "a size such as 512, 8k, 1m or 1g".into(),
                    _ if Self::BITS == 64 => "a whole number, 0 or more".into(),
                    _ => format!("a whole number from 0 to {}", Self::MAX),
                }
            }
        }
    )+};
}

number!(u16, u32, u64, usize);

/// An address to listen on; without an IP address it means all of them.
impl Scalar for SocketAddr {
    fn read(text: &str, _: Unit) -> Option<Self> {
        match text.strip_prefix(':') {
            Some(port) => Some(Self::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port.parse().ok()?)),
            None => text.parse().ok(),
        }
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string())
    }

    fn expected(_: Unit) -> String {
        "an address and a port, such as 192.0.2.10:9443 or :9443".into()
    }
}

impl Scalar for Duration {
    fn read(text: &str, _: Unit) -> Option<Self> {
        parse_duration(text)
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(format_duration(*self))
    }

    fn expected(_: Unit) -> String {
        "a time such as 500ms, 6s, 1m or 2h, a year at most".into()
    }
}

impl Scalar for String {
    fn read(text: &str, _: Unit) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.as_str())
    }

    fn expected(_: Unit) -> String {
        "a text that is not empty".into()
    }
}

impl Scalar for Target {
    fn read(text: &str, _: Unit) -> Option<Self> {
        Self::parse(text).ok()
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string())
    }

    fn expected(_: Unit) -> String {
        "a URL such as http://ocsp.example.com:8080/path, http or https, without user and password, on port 80, \
         443 or one from 1024 on"
            .into()
    }

    /// What is in settings is shown in logs and on the admin port; a password is not.
    fn shown(text: &str) -> String {
        match (text.find("://"), text.rfind('@')) {
            (Some(scheme), Some(at)) if scheme < at => {
                format!(
                    "{}://…{}",
                    text.get(..scheme).unwrap_or_default(),
                    text.get(at..).unwrap_or_default()
                )
            }
            (_, Some(at)) => format!("…{}", text.get(at..).unwrap_or_default()),
            (_, None) => text.to_owned(),
        }
    }
}

impl Scalar for PathBuf {
    /// Paths may hold spaces.
    const SEPARATORS: &[char] = &[',', '\n'];

    fn read(text: &str, _: Unit) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string_lossy())
    }

    fn expected(_: Unit) -> String {
        "a path".into()
    }
}

impl Scalar for IpAddr {
    fn read(text: &str, _: Unit) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        bare.unwrap_or(text).parse().ok()
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string())
    }

    fn expected(_: Unit) -> String {
        "an IP address such as 192.0.2.1 or 2001:db8::1".into()
    }
}

impl Scalar for IpNet {
    fn read(text: &str, _: Unit) -> Option<Self> {
        let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        network.ok().map(|network| network.trunc())
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string())
    }

    fn expected(_: Unit) -> String {
        "a network such as 10.0.0.0/8 or 2001:db8::/32".into()
    }
}

impl Scalar for ObjectName {
    fn read(text: &str, _: Unit) -> Option<Self> {
        let is_name = |name: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !name.is_empty() && name.len() <= 253 && name.chars().all(inner)
        };
        let (namespace, name) = text.split_once('/')?;
        (is_name(namespace) && is_name(name)).then(|| Self::new(namespace, name))
    }

    fn write(&self, _: Unit) -> Json {
        Json::from(self.to_string())
    }

    fn expected(_: Unit) -> String {
        "a name such as namespace/name".into()
    }
}

/// A deadline further away than this could overflow the clock it is added to.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads `500ms`, `6s`, `1m`, `2h`, `7d`, several in a row as `1h30m`, or plain seconds.
fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds)).filter(|total| *total <= LONGEST);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len()));
        let millis: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let part = digits.parse::<u64>().ok()?.checked_mul(millis)?;
        total = total.checked_add(Duration::from_millis(part))?;
        rest = tail.trim_start();
    }
    (!text.is_empty() && total <= LONGEST).then_some(total)
}

/// Writes whole milliseconds in the largest unit that they are a multiple of.
pub(super) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".into(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

/// Reads `512`, `8k`, `1m`, `1g`, in either case.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn format_size(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        _ if bytes == 0 => "0".into(),
        30.. => format!("{}g", bytes >> 30),
        20.. => format!("{}m", bytes >> 20),
        10.. => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

/// Takes every scalar as text.
struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list of scalars or a map of scalars")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_string()))
    }

    /// No setting is a fraction, and a name such as `1.10` would lose its last digit here.
    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Raw, E> {
        Err(E::custom("a number with a fraction; put it in quotes if it is a name"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Text(String::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(Text(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, Text(value))) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(Raw::Map(map))
    }
}

/// A scalar inside a list or map.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Raw::deserialize(deserializer)? {
            Raw::Text(text) => Ok(Self(text)),
            Raw::List(_) | Raw::Map(_) => {
                Err(serde::de::Error::custom("expected a scalar, found a list or map"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
