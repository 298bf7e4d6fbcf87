//! Targets of ExternalName Services.
//!
//! In a cluster, whoever may write a Service must not reach through the gateway what only the gateway can
//! reach: names and addresses of its own machine, of the metadata service and of the API server are refused
//! here. A name can still resolve to such an address later, which only a check at connect time finds. With the
//! directory source whoever writes the manifests owns the machine, and every target is fine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::names::{HostError, HostName};
use crate::settings::{Settings, choices::Source};
use crate::snapshot::clusters::Endpoint;

/// Why a target was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExternalNameError {
    #[error("the setting allow-external-name is off")]
    Off,
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("a name that ends in a number is an address in disguise")]
    Number,
    #[error("it is this machine, a metadata service or the API server")]
    Local,
    #[error("there is no port to connect to")]
    Port,
}

/// Where to connect to for `target`.
pub(super) fn endpoint(target: &str, port: u16, settings: &Settings) -> Result<Endpoint, ExternalNameError> {
    if !settings.allow_external_name {
        return Err(ExternalNameError::Off);
    }
    if port == 0 {
        return Err(ExternalNameError::Port);
    }
    let guarded = settings.source == Source::Kubernetes;
    if let Ok(address) = target.parse::<IpAddr>() {
        return match guarded && is_local(&address) {
            true => Err(ExternalNameError::Local),
            false => Ok(Endpoint::Address(SocketAddr::new(address, port))),
        };
    }
    // Neither a port nor brackets belong in `externalName`.
    if target.contains([':', '[']) {
        return Err(HostError::Character.into());
    }
    let host = HostName::new(target)?;
    if is_number(host.as_str()) {
        return Err(ExternalNameError::Number);
    }
    if guarded && is_local_name(host.as_str()) {
        return Err(ExternalNameError::Local);
    }
    Ok(Endpoint::Name { host: host.as_str().into(), port })
}

/// Loopback, link-local, unspecified, multicast and broadcast addresses, and IPv6 spellings of such.
pub(super) fn is_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_local_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_local_v4(&mapped),
            None => {
                address.is_loopback()
                    || address.is_unspecified()
                    || address.is_unicast_link_local()
                    || address.is_multicast()
            }
        },
    }
}

fn is_local_v4(address: &Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets().starts_with(&[0])
}

/// Resolvers take `127.1`, `0x7f.1` and `2130706433` for IPv4 addresses.
fn is_number(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_local_name(host: &str) -> bool {
    const NAMES: [&str; 6] = [
        "localhost",
        "localhost.localdomain",
        "ip6-localhost",
        "ip6-loopback",
        "metadata",
        "metadata.google.internal",
    ];
    const API_SERVER: [&str; 2] = ["kubernetes.default", "kubernetes.default.svc"];
    NAMES.contains(&host)
        || API_SERVER.contains(&host)
        || host.ends_with(".localhost")
        || host.starts_with("kubernetes.default.svc.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_cluster_local_targets_are_refused() {
        let settings = Settings { source: Source::Kubernetes, ..Settings::default() };
        for (target, error) in [
            ("localhost", ExternalNameError::Local),
            ("LocalHost.", ExternalNameError::Local),
            ("a.localhost", ExternalNameError::Local),
            ("127.0.0.1", ExternalNameError::Local),
            ("169.254.169.254", ExternalNameError::Local),
            ("0.0.0.0", ExternalNameError::Local),
            ("::1", ExternalNameError::Local),
            ("::ffff:127.0.0.1", ExternalNameError::Local),
            ("fe80::1", ExternalNameError::Local),
            ("metadata.google.internal", ExternalNameError::Local),
            ("kubernetes.default.svc.cluster.local", ExternalNameError::Local),
            ("127.1", ExternalNameError::Number),
            ("2130706433", ExternalNameError::Number),
            ("0x7f000001", ExternalNameError::Number),
            ("0x7F.1", ExternalNameError::Number),
            ("[::1]", ExternalNameError::Host(HostError::Character)),
            ("example.com:80", ExternalNameError::Host(HostError::Character)),
            ("", ExternalNameError::Host(HostError::Empty)),
            ("a b", ExternalNameError::Host(HostError::Character)),
        ] {
            assert_eq!(endpoint(target, 80, &settings), Err(error), "{target}");
        }
        let name = Endpoint::Name { host: "example.com".into(), port: 80 };
        assert_eq!(endpoint("Example.com.", 80, &settings), Ok(name));
        assert_eq!(endpoint("example.com", 0, &settings), Err(ExternalNameError::Port));
    }

    #[test]
    fn on_one_machine_local_targets_are_fine_unless_switched_off() {
        let mut settings = Settings::default();
        let address = Endpoint::Address(([127, 0, 0, 1], 80).into());
        assert_eq!(endpoint("127.0.0.1", 80, &settings), Ok(address));
        let name = Endpoint::Name { host: "localhost".into(), port: 80 };
        assert_eq!(endpoint("localhost", 80, &settings), Ok(name));
        settings.allow_external_name = false;
        assert_eq!(endpoint("localhost", 80, &settings), Err(ExternalNameError::Off));
    }
}
