//! Where a tunnel shall lead: `:authority` is what a client says, so it is held against the workloads there are.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::settings::Settings;
use crate::snapshot::workloads::{NODE_PROXY_PORTS, Workloads};

/// The application that a tunnel leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub address: SocketAddr,
    /// Of the workload.
    pub namespace: Arc<str>,
}

/// Why a client gets no tunnel, whoever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("only CONNECT is served here")]
    Method,
    #[error("the authority is not an address and a port")]
    Authority,
    #[error("ip mismatch: there is no workload of ours at that address")]
    NotOurs,
    #[error("the address is that of a machine, not of a workload")]
    Machine,
    #[error("recursion: that port leads back to a proxy")]
    Recursion,
}

impl TargetError {
    /// A word for the access log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Method => "method_not_allowed",
            Self::Authority => "bad_authority",
            Self::NotOurs => "ip_mismatch",
            Self::Machine => "machine_address",
            Self::Recursion => "recursion",
        }
    }
}

/// Where the gateway itself listens.
#[derive(Clone, Copy)]
pub struct Listening<'a> {
    /// Where the connection was accepted.
    pub at: SocketAddr,
    pub settings: &'a Settings,
}

impl Listening<'_> {
    /// Whether `address` is a port of the gateway.
    fn is_own(&self, address: SocketAddr) -> bool {
        let here = address.ip() == self.at.ip() || address.ip().is_loopback();
        let mut own = self.settings.listeners().map(|(_, port)| port).chain([self.at.port()]);
        here && own.any(|port| port == address.port())
    }
}

impl Target {
    /// Reads an authority and finds the workload that it means.
    pub fn find(
        authority: &str,
        workloads: &Workloads,
        listening: Listening<'_>,
    ) -> Result<Self, TargetError> {
        let address: SocketAddr = authority.parse().map_err(|_| TargetError::Authority)?;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if address.port() == 0 {
            return Err(TargetError::Authority);
        }
        if NODE_PROXY_PORTS.contains(&address.port()) || listening.is_own(address) {
            return Err(TargetError::Recursion);
        }
        let found = workloads.by_address.get(&address.ip()).ok_or(TargetError::NotOurs)?;
        if found.iter().any(|workload| workload.host_network) {
            return Err(TargetError::Machine);
        }
        let pod = found.iter().find_map(|workload| workload.pod.as_ref()).ok_or(TargetError::NotOurs)?;
        Ok(Self { address, namespace: pod.namespace.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::object::ObjectName;
    use crate::snapshot::workloads::Workload;

    fn workloads() -> Workloads {
        let mut workloads = Workloads::default();
        for (address, host_network) in [("10.0.0.1", false), ("fd00::1", false), ("192.0.2.7", true)] {
            let workload = Workload {
                pod: Some(ObjectName::new("app", "web-0")),
                principal: None,
                host_network,
                hbone: false,
                policies: Arc::default(),
            };
            workloads.by_address.insert(address.parse().unwrap(), [workload].into());
        }
        workloads
    }

    fn find(authority: &str) -> Result<SocketAddr, TargetError> {
        let settings = Settings {
            hbone_port: Some(15008),
            ca: true,
            validating_webhook: "0.0.0.0:9443".parse().ok(),
            ..Settings::default()
        };
        let listening = Listening { at: "10.0.0.1:25008".parse().unwrap(), settings: &settings };
        Target::find(authority, &workloads(), listening).map(|target| {
            assert_eq!(&*target.namespace, "app");
            target.address
        })
    }

    #[test]
    fn a_workload_is_found_by_its_address_in_any_spelling() {
        for (authority, address) in [
            ("10.0.0.1:8081", "10.0.0.1:8081"),
            ("[::ffff:10.0.0.1]:8081", "10.0.0.1:8081"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("[fd00:0:0::1]:80", "[fd00::1]:80"),
        ] {
            assert_eq!(find(authority), Ok(address.parse().unwrap()), "{authority}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        use TargetError::*;
        for (authority, error) in [
            ("", Authority),
            ("10.0.0.1", Authority),
            ("web.app:80", Authority),
            ("10.0.0.1:", Authority),
            ("10.0.0.1:0", Authority),
            ("10.0.0.1:65536", Authority),
            ("a@10.0.0.1:80", Authority),
            ("010.0.0.1:80", Authority),
            ("fd00::1:80", Authority),
            ("10.0.0.2:80", NotOurs),
            ("127.0.0.1:80", NotOurs),
            ("0.0.0.0:80", NotOurs),
            ("192.0.2.7:10250", Machine),
            ("10.0.0.1:15001", Recursion),
            ("10.0.0.1:15006", Recursion),
            ("10.0.0.1:15008", Recursion),
            ("10.9.9.9:15008", Recursion),
            ("10.0.0.1:25008", Recursion),
            ("10.0.0.1:10254", Recursion),
            ("127.0.0.1:10254", Recursion),
            ("[::ffff:10.0.0.1]:8443", Recursion),
            ("10.0.0.1:8060", Recursion),
            ("10.0.0.1:9443", Recursion),
        ] {
            assert_eq!(find(authority), Err(error), "{authority}");
        }
    }
}
