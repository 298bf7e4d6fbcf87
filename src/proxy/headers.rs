//! Header fields on their way through: what concerns only one connection goes, what tells the backend about
//! the client is set from the connection, never taken from the client unless its address is trusted.

mod client_fields;

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{CONNECTION, COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use ipnet::IpNet;

pub use client_fields::ClientFields;

use super::client_cert_header::X_FORWARDED_CLIENT_CERT;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY: HeaderName = HeaderName::from_static("proxy");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_ORIGINAL_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-original-forwarded-for");
const X_ORIGINAL_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-original-forwarded-host");
pub const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
pub const SSL_CLIENT_CERT: HeaderName = HeaderName::from_static("ssl-client-cert");
pub const SSL_CLIENT_ISSUER_DN: HeaderName = HeaderName::from_static("ssl-client-issuer-dn");
pub const SSL_CLIENT_SUBJECT_DN: HeaderName = HeaderName::from_static("ssl-client-subject-dn");
pub const SSL_CLIENT_VERIFY: HeaderName = HeaderName::from_static("ssl-client-verify");
pub const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub const X_FORWARDED_SCHEME: HeaderName = HeaderName::from_static("x-forwarded-scheme");
pub const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub const X_SCHEME: HeaderName = HeaderName::from_static("x-scheme");

/// What becomes of a field that the gateway sets itself when a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It goes.
    Dropped,
    /// It goes on under this name, which ingress-nginx gives it.
    Renamed(HeaderName),
    /// Who sets it decides.
    Decided,
}

/// The fields that the gateway itself sets. No other spelling may imitate them, and none may come after a body. A name
/// under which another goes on stands before it.
const MANAGED: [(HeaderName, Fate); 17] = [
    (X_ORIGINAL_FORWARDED_FOR, Fate::Dropped),
    (X_ORIGINAL_FORWARDED_HOST, Fate::Dropped),
    (X_FORWARDED_FOR, Fate::Renamed(X_ORIGINAL_FORWARDED_FOR)),
    (X_FORWARDED_HOST, Fate::Renamed(X_ORIGINAL_FORWARDED_HOST)),
    (X_FORWARDED_PORT, Fate::Dropped),
    (X_FORWARDED_PROTO, Fate::Dropped),
    (X_FORWARDED_SCHEME, Fate::Dropped),
    (X_REAL_IP, Fate::Dropped),
    (X_SCHEME, Fate::Dropped),
    (FORWARDED, Fate::Dropped),
    (SSL_CLIENT_CERT, Fate::Dropped),
    (SSL_CLIENT_ISSUER_DN, Fate::Dropped),
    (SSL_CLIENT_SUBJECT_DN, Fate::Dropped),
    (SSL_CLIENT_VERIFY, Fate::Dropped),
    (X_FORWARDED_CLIENT_CERT, Fate::Decided),
    (X_REQUEST_ID, Fate::Decided),
    (HOST, Fate::Decided),
];

/// Removes from a request what is meant for the connection to the gateway (RFC 9110, section 7.6.1): the fields
/// that `Connection` lists first, then those that never go further; and what it says about the client itself,
/// kept under the names that ingress-nginx gives it. Returns the protocol of a wanted upgrade.
pub fn strip_request(headers: &mut HeaderMap, underscores: bool) -> Option<HeaderValue> {
    // Most requests have nothing of all this, and one look at their names is cheaper than to ask for each field.
    if !headers.keys().any(|name| stays_here(name.as_str()) || is_claim(name) || is_odd(name)) {
        return None;
    }
    let upgrade = wanted_upgrade(headers);
    let trailers = takes_trailers(headers);
    strip_connection(headers);
    for name in [TE, PROXY, HTTP2_SETTINGS] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    strip_aliases(headers, underscores);
    strip_claims(headers);
    upgrade
}

/// Whether a field concerns one connection only, in a request or a response.
pub fn stays_here(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "upgrade"
            | "te"
            | "proxy"
            | "http2-settings"
    )
}

/// Whether a field says something that is the gateway's to say.
fn is_claim(name: &HeaderName) -> bool {
    // A glance that is enough for nearly all fields.
    matches!(name.as_str().as_bytes(), [b'x', b'-', ..] | [b'f', ..] | [b's', b's', ..])
        && MANAGED.iter().any(|(managed, fate)| *fate != Fate::Decided && managed == name)
}

/// Whether `name` is one of the fields that the gateway sets.
pub fn is_managed(name: &str) -> bool {
    MANAGED.iter().any(|(managed, _)| managed == name)
}

/// The name as a backend may read it: some take an underscore or a dot for a dash.
pub fn dashed(name: &str) -> Cow<'_, str> {
    if has_odd_letter(name) { name.replace(['_', '.'], "-").into() } else { name.into() }
}

/// Whether a backend could take the name for another.
fn is_odd(name: &HeaderName) -> bool {
    has_odd_letter(name.as_str())
}

fn has_odd_letter(name: &str) -> bool {
    memchr::memchr2(b'_', b'.', name.as_bytes()).is_some()
}

fn strip_claims(headers: &mut HeaderMap) {
    for (name, fate) in &MANAGED {
        if *fate == Fate::Decided {
            continue;
        }
        if let Fate::Renamed(other) = fate
            && let Some(value) = joined(headers, name, b", ")
        {
            headers.insert(other, value);
        }
        headers.remove(name);
    }
}

/// All lines of a field as one (RFC 9110, section 5.3); none where it is absent or empty.
pub fn joined(headers: &HeaderMap, name: &HeaderName, separator: &[u8]) -> Option<HeaderValue> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    // Pieces of valid values are valid together.
    HeaderValue::from_bytes(&lines.join(separator)).ok().filter(|value| !value.is_empty())
}

/// Puts a cookie that HTTP/2 split into crumbs together again: HTTP/1 has room for one field (RFC 9113,
/// section 8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    if let Some(cookie) = joined(headers, &COOKIE, b"; ") {
        headers.insert(COOKIE, cookie);
    }
}

/// Removes from a response what is meant for the connection to the backend. The protocol that a 101 names is for
/// the client to know (RFC 9110, section 15.2.2).
pub fn strip_response(headers: &mut HeaderMap, status: StatusCode) {
    if !headers.keys().any(|name| stays_here(name.as_str())) {
        return;
    }
    let protocol = headers.remove(UPGRADE).filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
    strip_connection(headers);
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
}

fn strip_connection(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .filter(|name| *name != HOST)
            .collect();
        for name in listed {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// The protocol to change to, where `Connection: upgrade` says so. HTTP/2 in the clear is not one: it would
/// open a second way past every rule of the first.
fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let listed = headers.get_all(CONNECTION).iter().any(|value| has_token(value, "upgrade"));
    (listed && !has_token(protocol, "h2c")).then(|| protocol.clone())
}

/// Whether the client says that it understands trailers.
pub fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().any(|te| has_token(te, "trailers"))
}

fn has_token(value: &HeaderValue, token: &str) -> bool {
    value
        .as_bytes()
        .split(|b| *b == b',')
        .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Backends that turn fields into variables cannot tell `x_real_ip` and `x.real.ip` from `x-real-ip`.
fn strip_aliases(headers: &mut HeaderMap, underscores: bool) {
    let is_alias = |name: &HeaderName| {
        is_managed(&dashed(name.as_str())) || (!underscores && name.as_str().contains('_'))
    };
    let aliases: Vec<_> = headers.keys().filter(|name| is_odd(name) && is_alias(name)).cloned().collect();
    for name in aliases {
        headers.remove(name);
    }
}

/// What a trusted peer says about the client it stands for, where `use-forwarded-headers` is on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    pub client: Option<IpAddr>,
    pub https: Option<bool>,
    pub host: Option<HeaderValue>,
    pub port: Option<HeaderValue>,
    pub request_id: Option<HeaderValue>,
    /// X-Forwarded-For as it came in.
    pub chain: Option<HeaderValue>,
}

/// Reads the claims of a peer that is one of `trusted`.
pub fn claims(headers: &HeaderMap, trusted: &[IpNet]) -> Claimed {
    let first = |name: HeaderName| -> Option<HeaderValue> {
        let value = headers.get(name)?.to_str().ok()?;
        HeaderValue::from_str(value.split(',').next()?.trim()).ok().filter(|value| !value.is_empty())
    };
    let chain: Vec<&str> =
        headers.get_all(X_FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok()).collect();
    Claimed {
        client: client_of(&chain, trusted),
        https: first(X_FORWARDED_PROTO).map(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https")),
        host: first(X_FORWARDED_HOST),
        port: first(X_FORWARDED_PORT).filter(|port| port.as_bytes().iter().all(u8::is_ascii_digit)),
        request_id: headers.get(X_REQUEST_ID).cloned(),
        chain: HeaderValue::from_str(&chain.join(", ")).ok().filter(|chain| !chain.is_empty()),
    }
}

impl Claimed {
    /// The fields in which what a trusted peer claims stands in place of what the connection shows. With `full` its
    /// own address is appended to the chain it sent, else the chain is the client alone.
    pub fn fields(&self, connection: &Connection, full: bool) -> ClientFields {
        let client = self.client.and_then(|client| HeaderValue::from_str(&client.to_string()).ok());
        let client = client.as_ref().unwrap_or(&connection.peer);
        let chain = self.chain.as_ref().filter(|_| full).and_then(|chain| {
            HeaderValue::from_bytes(&[chain.as_bytes(), b", ", connection.peer.as_bytes()].concat()).ok()
        });
        let https = self.https.unwrap_or(connection.https);
        let port = self.port.as_ref().unwrap_or(&connection.port);
        ClientFields::new(client, chain.as_ref().unwrap_or(client), port, https)
    }
}

/// What a connection shows of the client.
pub struct Connection {
    /// The peer's address as text.
    pub peer: HeaderValue,
    /// What clients are told they connected to.
    pub port: HeaderValue,
    /// TLS, here or at a load balancer that says so.
    pub https: bool,
}

impl Connection {
    pub fn fields(&self) -> ClientFields {
        ClientFields::new(&self.peer, &self.peer, &self.port, self.https)
    }
}

/// The rightmost address that no trusted peer vouches for being a proxy; what stands left of it anyone may
/// have written. An entry that is no address ends the walk: the one to its right is all that is known.
fn client_of(chain: &[&str], trusted: &[IpNet]) -> Option<IpAddr> {
    let mut client = None;
    for entry in chain.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Some(address) = parse_address(entry.trim()) else { break };
        client = Some(address);
        if !is_trusted(address, trusted) {
            break;
        }
    }
    client
}

/// An address with or without brackets and port; an IPv4 address in IPv6 is the IPv4 address.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(address, _)| address);
    let address = bare.unwrap_or(text).parse().ok();
    let address = address.or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip()))?;
    Some(address.to_canonical())
}

pub fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests;
