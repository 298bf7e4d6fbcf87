//! The kinds of values that annotations have.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use ipnet::IpNet;

use super::AnnotationError;
use crate::names::HostName;
use crate::settings::field::Unit;
use crate::settings::value::Scalar;
use crate::snapshot::cors::{OriginPattern, Origins};
use crate::snapshot::redirects::{Location, LocationError};
use crate::snapshot::rewrites::TemplateError;

/// The spellings that Go's `ParseBool` takes, as ingress-nginx does.
pub fn boolean(value: &str) -> Result<bool, AnnotationError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(AnnotationError::Value),
    }
}

/// A whole number of seconds, at least one.
pub fn seconds(value: &str) -> Result<Duration, AnnotationError> {
    match digits(value)?.parse::<u32>() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds.into())),
        _ => Err(AnnotationError::Value),
    }
}

/// A whole number, at least one.
pub fn count(value: &str) -> Result<usize, AnnotationError> {
    match digits(value)?.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(AnnotationError::Value),
    }
}

/// The same of a cookie's life.
pub fn cookie_seconds(value: &str) -> Result<u32, AnnotationError> {
    digits(value)?.parse().ok().filter(|seconds| *seconds > 0).ok_or(AnnotationError::Value)
}

/// A whole number.
pub fn whole(value: &str) -> Result<u32, AnnotationError> {
    digits(value)?.parse().map_err(|_| AnnotationError::Value)
}

/// What may stand in a field.
pub fn field_value(value: &str) -> Result<&str, AnnotationError> {
    match !value.is_empty() && value.len() <= 1024 && HeaderValue::from_str(value).is_ok() {
        true => Ok(value),
        false => Err(AnnotationError::Value),
    }
}

/// A name as fields and cookies have it (RFC 9110, section 5.6.2).
pub fn token(value: &str) -> Result<&str, AnnotationError> {
    let fits =
        |byte| matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || fits(byte);
    match !value.is_empty() && value.len() <= 128 && value.bytes().all(fits) {
        true => Ok(value),
        false => Err(AnnotationError::Value),
    }
}

/// A path that can stand in a cookie.
pub fn cookie_path(value: &str) -> Result<&str, AnnotationError> {
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b';';
    match value.starts_with('/') && value.len() <= 1024 && value.bytes().all(fits) {
        true => Ok(value),
        false => Err(AnnotationError::Value),
    }
}

/// A domain that can stand in a cookie.
pub fn cookie_domain(value: &str) -> Result<&str, AnnotationError> {
    let bare = value.strip_prefix('.').unwrap_or(value);
    match HostName::new(bare) {
        Ok(name) if name.as_str().eq_ignore_ascii_case(bare) && !bare.starts_with('[') => Ok(value),
        _ => Err(AnnotationError::Value),
    }
}

/// A number of bytes as nginx writes it: `k`, `m` and `g` are powers of 1024.
pub fn size(value: &str) -> Result<u64, AnnotationError> {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let factor = match unit {
        "" | "b" | "B" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return Err(AnnotationError::Value),
    };
    let number = digits(value.strip_suffix(unit).unwrap_or(value))?.parse::<u64>().ok();
    number.and_then(|number| number.checked_mul(factor)).ok_or(AnnotationError::Value)
}

/// What lists of networks are called and look like, for the documentation of each annotation that is one.
pub const NETWORKS: &str = "networks or addresses such as `10.0.0.0/8, 2001:db8::1`, separated by commas";
pub const NETWORKS_EXAMPLE: &str = "10.0.0.0/8, 192.0.2.7";

/// Networks and addresses, separated by commas.
pub fn networks(value: &str) -> Result<Vec<IpNet>, AnnotationError> {
    let entries = value.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let networks: Option<Vec<_>> = entries.map(|entry| IpNet::read(entry, Unit::None)).collect();
    // A list of nothing but commas would let in everybody.
    networks.filter(|networks| value.is_empty() || !networks.is_empty()).ok_or(AnnotationError::Value)
}

/// Origins, separated by commas; `*` among them is all.
pub fn origins(value: &str) -> Result<Origins, AnnotationError> {
    let entries: Vec<_> = value.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
    if entries.contains(&"*") {
        return Ok(Origins::Any);
    }
    let patterns: Option<Vec<_>> = entries.iter().map(|entry| OriginPattern::parse(entry)).collect();
    let patterns = patterns.filter(|patterns| !patterns.is_empty()).ok_or(AnnotationError::Value)?;
    Ok(Origins::These(patterns.into()))
}

/// Names of methods or header fields (RFC 9110, section 5.6.2), separated by commas; `*` is one.
pub fn tokens(value: &str) -> Result<HeaderValue, AnnotationError> {
    match value.split(',').all(|name| token(name.trim()).is_ok()) {
        true => HeaderValue::from_str(value).map_err(|_| AnnotationError::Value),
        false => Err(AnnotationError::Value),
    }
}

/// Where a redirect may lead: a URL, or a path on the host that was asked for.
pub fn location(value: &str) -> Result<Location, AnnotationError> {
    Location::parse(value).map_err(|error| match error {
        LocationError::Malformed => AnnotationError::Value,
        LocationError::UnknownVariable => AnnotationError::Unsupported,
    })
}

impl From<TemplateError> for AnnotationError {
    fn from(error: TemplateError) -> Self {
        match error {
            TemplateError::Malformed => Self::Value,
            TemplateError::UnknownVariable => Self::Unsupported,
        }
    }
}

/// A path without variables.
pub fn path(value: &str) -> Result<Location, AnnotationError> {
    match value.starts_with('/') && !value.contains('$') {
        true => location(value),
        false => Err(AnnotationError::Value),
    }
}

/// A status that makes clients follow `Location` (RFC 9110, section 15.4).
pub fn redirect_code(value: &str) -> Result<StatusCode, AnnotationError> {
    match value {
        "301" | "302" | "303" | "307" | "308" => value.parse().map_err(|_| AnnotationError::Value),
        _ => Err(AnnotationError::Value),
    }
}

/// `value`, if it has nothing but digits: `parse` would take a sign too.
fn digits(value: &str) -> Result<&str, AnnotationError> {
    match value.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(value),
        false => Err(AnnotationError::Value),
    }
}
