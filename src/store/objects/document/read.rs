//! From a document to a policy.

use std::collections::BTreeMap;
use std::net::IpAddr;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ipnet::IpNet;
use serde_json::Value;

use crate::snapshot::policies::{
    Action, Authorization, Condition, Group, Match, Rule, Scope, ServiceAccount, StringMatch, Values,
    canonical_network,
};
use crate::store::objects::ObjectName;
use crate::store::objects::field::{Short, quoted};

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct DocumentError {
    /// Path of the field, as `groups[0].rules[1].matches[0].sourceIps[2]`.
    pub field: String,
    pub problem: String,
}

/// The JSON form of protocol buffers has bytes in either alphabet of base64, padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

type Result<T> = std::result::Result<T, DocumentError>;

fn error<T>(field: &str, problem: impl Into<String>) -> Result<T> {
    Err(DocumentError { field: field.into(), problem: problem.into() })
}

/// Reads a policy from its document. As the JSON form of protocol buffers has it, a field may also go by its
/// `snake_case` name, an enumeration by its number, and null is a field left out.
pub fn from_value(document: &Value) -> Result<Authorization> {
    let mut fields = Fields::open("", document)?;
    let name = fields.text("name")?;
    if name.is_empty() {
        return error("name", "a policy needs a name");
    }
    let policy = Authorization {
        name: ObjectName::new(fields.text("namespace")?, name),
        scope: fields.scope()?,
        action: fields.choice("action", &[("ALLOW", Action::Allow), ("DENY", Action::Deny)])?,
        groups: fields.list("groups", group)?,
        dry_run: fields.flag("dryRun")?,
    };
    fields.close()?;
    Ok(policy)
}

/// Whom a document is for that may be refused for something else, and whether it is only tried out; `None` where
/// that cannot be told, as it cannot where the scope may be under a name that is misspelt.
pub fn reach(document: &Value) -> Option<(Scope, bool)> {
    const BESIDE_SCOPE: [&str; 5] = ["name", "namespace", "action", "groups", "dryRun"];
    let mut fields = Fields::open("", document).ok()?;
    let known = |name: &String| BESIDE_SCOPE.contains(&name.as_str());
    if !fields.values.contains_key("scope") && !fields.values.keys().all(known) {
        return None;
    }
    Some((fields.scope().ok()?, fields.flag("dryRun").unwrap_or(false)))
}

fn group(path: &str, value: &Value) -> Result<Group> {
    let mut fields = Fields::open(path, value)?;
    let rules = fields.list("rules", rule)?;
    fields.close()?;
    Ok(Group { rules })
}

fn rule(path: &str, value: &Value) -> Result<Rule> {
    let mut fields = Fields::open(path, value)?;
    let matches = fields.list("matches", match_)?;
    fields.close()?;
    Ok(Rule { matches })
}

fn match_(path: &str, value: &Value) -> Result<Match> {
    let fields = Fields::open(path, value)?;
    let mut conditions = Vec::new();
    for (name, value) in &fields.values {
        let path = fields.path_of(name);
        let (negated, attribute) = match name.strip_prefix("not").and_then(lower_first) {
            Some(attribute) => (true, attribute),
            None => (false, name.clone()),
        };
        let values = match &*attribute {
            "sourceIps" => Values::SourceIps(list(&path, value, network)?),
            "destinationIps" => Values::DestinationIps(list(&path, value, network)?),
            "destinationPorts" => Values::DestinationPorts(list(&path, value, port)?),
            "namespaces" => Values::Namespaces(list(&path, value, string_match)?),
            "principals" => Values::Principals(list(&path, value, string_match)?),
            "serviceAccounts" => Values::ServiceAccounts(list(&path, value, service_account)?),
            "trustDomains" => Values::TrustDomains(list(&path, value, string_match)?),
            _ => return error(&path, "there is no such field"),
        };
        if !value.as_array().is_some_and(Vec::is_empty) {
            conditions.push(Condition { negated, values });
        }
    }
    Ok(Match { conditions: conditions.into() })
}

/// An address in base64, 4 or 16 bytes, with the length of its prefix.
fn network(path: &str, value: &Value) -> Result<IpNet> {
    let mut fields = Fields::open(path, value)?;
    let text = fields.text("address")?.replace('-', "+").replace('_', "/");
    let bytes = BASE64.decode(text).unwrap_or_default();
    let address = match (<[u8; 4]>::try_from(&*bytes), <[u8; 16]>::try_from(&*bytes)) {
        (Ok(v4), _) => IpAddr::from(v4),
        (_, Ok(v6)) => IpAddr::from(v6),
        _ => return error(&fields.path_of("address"), "this is not 4 or 16 bytes in base64"),
    };
    let length = fields.number("length")?;
    let network = u8::try_from(length).ok().and_then(|length| IpNet::new(address, length).ok());
    fields.close()?;
    match network {
        Some(network) => Ok(canonical_network(network)),
        None => error(&fields.path_of("length"), format!("{length} is longer than the address")),
    }
}

fn port(path: &str, value: &Value) -> Result<u16> {
    match number(path, value)?.try_into() {
        Ok(port) => Ok(port),
        Err(_) => error(path, format!("{} is not a port number from 0 to 65535", short(value))),
    }
}

/// A number, or its decimal digits as text.
fn number(path: &str, value: &Value) -> Result<u64> {
    match value.as_u64().or_else(|| value.as_str()?.parse().ok()) {
        Some(number) => Ok(number),
        None => error(path, "this must be a whole number"),
    }
}

fn string_match(path: &str, value: &Value) -> Result<StringMatch> {
    let mut fields = Fields::open(path, value)?;
    let kind = match fields.values.keys().next() {
        Some(name) if fields.values.len() == 1 => name.clone(),
        _ => return error(path, "this must be exactly one of exact, prefix, suffix and presence"),
    };
    let text = match &*kind {
        "exact" => StringMatch::Exact(fields.text("exact")?.into()),
        "prefix" => StringMatch::Prefix(fields.text("prefix")?.into()),
        "suffix" => StringMatch::Suffix(fields.text("suffix")?.into()),
        "presence" => {
            let path = fields.path_of("presence");
            Fields::open(&path, fields.take("presence").unwrap_or(&Value::Null))?.close()?;
            StringMatch::Presence
        }
        _ => return error(&fields.path_of(&kind), "there is no such field"),
    };
    Ok(text)
}

fn service_account(path: &str, value: &Value) -> Result<ServiceAccount> {
    let mut fields = Fields::open(path, value)?;
    let account = ServiceAccount {
        namespace: fields.text("namespace")?.into(),
        name: fields.text("serviceAccount")?.into(),
    };
    fields.close()?;
    match account.namespace.is_empty() || account.name.is_empty() {
        true => error(path, "this needs a namespace and a serviceAccount"),
        false => Ok(account),
    }
}

fn list<T>(path: &str, value: &Value, entry: impl Fn(&str, &Value) -> Result<T>) -> Result<Box<[T]>> {
    match value.as_array() {
        Some(entries) => {
            entries.iter().enumerate().map(|(at, value)| entry(&format!("{path}[{at}]"), value)).collect()
        }
        None => error(path, "this must be a list"),
    }
}

/// The fields of a message that are set, by their lowerCamelCase names.
struct Fields<'v> {
    path: String,
    values: BTreeMap<String, &'v Value>,
}

impl<'v> Fields<'v> {
    fn open(path: &str, value: &'v Value) -> Result<Self> {
        let Some(map) = value.as_object() else { return error(path, "this must be a mapping") };
        let mut fields = Self { path: path.into(), values: BTreeMap::new() };
        for (name, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            if fields.values.insert(lower_camel_case(name), value).is_some() {
                return error(&fields.path_of(name), "the field is there twice");
            }
        }
        Ok(fields)
    }

    /// Refuses what has not been taken.
    fn close(&self) -> Result<()> {
        match self.values.keys().next() {
            Some(name) => error(&self.path_of(name), "there is no such field"),
            None => Ok(()),
        }
    }

    fn path_of(&self, name: &str) -> String {
        let name = Short(name);
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    fn take(&mut self, name: &str) -> Option<&'v Value> {
        self.values.remove(name)
    }

    fn text(&mut self, name: &str) -> Result<&'v str> {
        match self.take(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => error(&self.path_of(name), "this must be text"),
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => error(&self.path_of(name), "this must be true or false"),
        }
    }

    fn number(&mut self, name: &str) -> Result<u64> {
        self.take(name).map_or(Ok(0), |value| number(&self.path_of(name), value))
    }

    fn list<T>(&mut self, name: &str, entry: impl Fn(&str, &Value) -> Result<T>) -> Result<Box<[T]>> {
        self.take(name).map_or_else(|| Ok(Box::default()), |value| list(&self.path_of(name), value, entry))
    }

    fn scope(&mut self) -> Result<Scope> {
        let known = [
            ("GLOBAL", Scope::Global),
            ("NAMESPACE", Scope::Namespace),
            ("WORKLOAD_SELECTOR", Scope::WorkloadSelector),
        ];
        self.choice("scope", &known)
    }

    /// A value of an enumeration, by name or number; the first one where the field is left out.
    fn choice<T: Copy + Default>(&mut self, name: &str, known: &[(&str, T)]) -> Result<T> {
        let Some(value) = self.take(name) else { return Ok(T::default()) };
        let by_number = || known.get(usize::try_from(value.as_u64()?).ok()?);
        let found = known.iter().find(|(text, _)| value == text).or_else(by_number);
        match found {
            Some((_, choice)) => Ok(*choice),
            None => error(&self.path_of(name), format!("{} is not a known value", short(value))),
        }
    }
}

/// A value for a message.
fn short(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a mapping".into(),
        other => other.to_string(),
    }
}

/// `SourceIps` as `sourceIps`; `None` for what does not begin with a capital letter.
fn lower_first(name: &str) -> Option<String> {
    let first = name.chars().next().filter(char::is_ascii_uppercase)?;
    Some(format!("{}{}", first.to_ascii_lowercase(), name.get(1..)?))
}

fn lower_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}
