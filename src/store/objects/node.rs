//! A manifest as a small tree that borrows from its text: what YAML, JSON and API answers have in common.
//!
//! Made by whoever reads documents (`Node::deserialize` over any serde format, `&serde_json::Value`
//! included) and read through [`Field`](super::Field). It takes any shape, so that one wrong field can be
//! reported and the rest used; strings are not copied where the format allows it. No `Debug`: it may hold
//! a Secret.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use zeroize::Zeroize;

/// One value. Map entries keep their order; where a key is given twice the last one counts, as in JSON.
#[derive(PartialEq, Eq, Hash)]
pub enum Node<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    /// Any other number. No field that is read here is one, so its value is kept for comparison only.
    Number(u64),
    String(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl<'a> Node<'a> {
    /// The value under `key`; `None` also where it is null, which manifests use for "not given".
    pub fn get(&self, key: &str) -> Option<&Node<'a>> {
        let Self::Map(entries) = self else { return None };
        let (_, value) = entries.iter().rev().find(|(name, _)| name == key)?;
        (*value != Self::Null).then_some(value)
    }

    /// The text under `key`.
    pub fn get_str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The same value as JSON. A number that is no integer stays a number, though not the same one.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::from(*value),
            Self::Integer(value) => Value::from(*value),
            Self::Number(_) => Value::from(0.5),
            Self::String(text) => Value::from(&**text),
            Self::List(items) => items.iter().map(Node::to_json).collect(),
            Self::Map(entries) => {
                entries.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect()
            }
        }
    }

    /// What it is, for messages: "a list".
    pub fn shape(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// Overwrites the strings it owns. Those it borrows are the caller's to overwrite.
    pub fn wipe(&mut self) {
        match self {
            Self::String(Cow::Owned(text)) => text.zeroize(),
            Self::List(items) => items.iter_mut().for_each(Node::wipe),
            Self::Map(entries) => entries.iter_mut().for_each(|(_, value)| value.wipe()),
            _ => {}
        }
    }
}

/// In a form that is read as the same value again, up to numbers that are no integers: those stay numbers.
impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Number(_) => serializer.serialize_f64(0.5),
            Self::String(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Node<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(value).map_or(Node::Number(value), Node::Integer))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Self::Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Self::Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_bits()))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Node::String(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Self::Value, E> {
        Ok(Node::String(Cow::Owned(value)))
    }

    /// `!!binary` in YAML. No field takes it; what it holds is not kept.
    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::new();
        while let Some((Key(key), value)) = entries.next_entry()? {
            map.push((key, value));
        }
        Ok(Node::Map(map))
    }
}

/// A map key as text: YAML has `80:` and `true:` as keys too.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Node::deserialize(deserializer)? {
            Node::String(text) => text,
            Node::Integer(number) => Cow::Owned(number.to_string()),
            Node::Bool(value) => Cow::Borrowed(if value { "true" } else { "false" }),
            other => return Err(D::Error::custom(format_args!("a key is {}, not text", other.shape()))),
        }))
    }
}
