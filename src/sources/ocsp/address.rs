//! Which addresses the gateway may open a connection to on behalf of a URL in a tenant's certificate.
//!
//! Only what is reachable by everyone on the internet; whatever has a meaning inside a cluster, a machine or a
//! cloud is refused, unless the operator's `ocsp-allowed-cidrs` contains it. The check is made on the address
//! that is then connected to, so a name cannot mean one thing when checked and another when used.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// IPv4 ranges with a special meaning (IANA registry, RFC 6890), and one cloud's metadata address outside them.
const REFUSED_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's host agent
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, and the metadata service of most clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3), // multicast, reserved, broadcast
];

/// The only IPv6 range in public use; loopback, unique local, link-local and multicast lie outside.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Parts of it that are not public after all: protocol assignments with Teredo, documentation, 6to4.
const REFUSED_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// NAT64 (RFC 6052): in an IPv6-only network every IPv4 host is seen through this prefix.
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether a connection to `address` is permitted.
pub fn is_permitted(address: IpAddr, allowed: &[IpNet]) -> bool {
    let address = embedded_v4(address);
    allowed.iter().any(|network| network.contains(&address)) || is_public(address)
}

/// The IPv4 address that an IPv6 address is only another spelling of.
fn embedded_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    if contains_v6(NAT64, v6) {
        let [.., a, b, c, d] = v6.octets();
        return Ipv4Addr::new(a, b, c, d).into();
    }
    address
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !REFUSED_V4.iter().any(|&range| contains_v4(range, v4)),
        IpAddr::V6(v6) => {
            contains_v6(GLOBAL_V6, v6) && !REFUSED_V6.iter().any(|&range| contains_v6(range, v6))
        }
    }
}

fn contains_v4((network, length): (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    Ipv4Net::new(network, length).is_ok_and(|network| network.contains(&address))
}

fn contains_v6((network, length): (Ipv6Addr, u8), address: Ipv6Addr) -> bool {
    Ipv6Net::new(network, length).is_ok_and(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(address: &str, allowed: &[&str]) -> bool {
        let allowed: Vec<IpNet> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        is_permitted(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn public_addresses_are_permitted() {
        for address in
            ["1.1.1.1", "23.45.67.89", "172.32.0.1", "100.128.0.1", "2606:4700::6810:1", "2a00:1450::1"]
        {
            assert!(permitted(address, &[]), "{address}");
        }
    }

    #[test]
    fn inner_addresses_are_refused() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
        ] {
            assert!(!permitted(address, &[]), "{address}");
        }
    }

    #[test]
    fn public_hosts_behind_nat64_are_permitted() {
        assert!(permitted("64:ff9b::101:101", &[]));
        assert!(permitted("::ffff:1.1.1.1", &[]));
    }

    #[test]
    fn allowed_networks_open_exactly_what_they_name() {
        assert!(permitted("10.1.2.3", &["10.1.0.0/16"]));
        assert!(permitted("::ffff:10.1.2.3", &["10.1.0.0/16"]));
        assert!(!permitted("10.2.2.3", &["10.1.0.0/16"]));
        assert!(permitted("fd12::1", &["10.1.0.0/16", "fd12::/16"]));
    }
}
