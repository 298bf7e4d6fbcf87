//! Which clients a route is for, by their addresses.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::policies::canonical_network;

/// A set of networks, in which an address is found in logarithmic time: lists of thousands are no rarity.
///
/// An IPv4 address within IPv6 is the IPv4 address, and `::/0` holds no IPv4 address, as in nginx.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    v4: Ranges,
    v6: Ranges,
}

/// First and last number of each range, in order, none touching another.
type Ranges = Box<[(u128, u128)]>;

impl Networks {
    pub fn new(networks: &[IpNet]) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) =
            networks.iter().map(|network| canonical_network(*network)).partition(|n| n.addr().is_ipv4());
        Self { v4: merged(&v4), v6: merged(&v6) }
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let ranges = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        let number = number(address);
        let after = ranges.partition_point(|(first, _)| *first <= number);
        after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, last)| number <= *last)
    }
}

fn merged(networks: &[IpNet]) -> Ranges {
    let ends = |network: &IpNet| (number(network.network()), number(network.broadcast()));
    let mut ranges: Vec<_> = networks.iter().map(ends).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged.into()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The clients that may use a route: none of those denied and, where there is a list of allowed ones, only those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRanges {
    allowed: Option<Networks>,
    denied: Networks,
}

impl SourceRanges {
    /// `None` where it is everybody. An empty list is no list.
    pub fn new(allowed: &[IpNet], denied: &[IpNet]) -> Option<Arc<Self>> {
        let listed = (!allowed.is_empty()).then(|| Networks::new(allowed));
        let is_restricted = listed.is_some() || !denied.is_empty();
        is_restricted.then(|| Arc::new(Self { allowed: listed, denied: Networks::new(denied) }))
    }

    pub fn admit(&self, client: IpAddr) -> bool {
        !self.denied.contains(client) && self.allowed.as_ref().is_none_or(|allowed| allowed.contains(client))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn contains(texts: &[&str], address: &str) -> bool {
        Networks::new(&networks(texts)).contains(address.parse().unwrap())
    }

    #[test]
    fn an_address_is_in_its_network_alone() {
        for (texts, inside, outside) in [
            (&["10.0.0.0/8"][..], &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"][..], &["11.0.0.0"][..]),
            (&["192.0.2.1/32"], &["192.0.2.1"], &["192.0.2.0", "192.0.2.2", "::c000:201"]),
            (&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"], &["::1", "2001:db8::1"]),
            (&["::/0"], &["::", "ffff::1"], &["1.2.3.4", "::ffff:1.2.3.4"]),
            (&["::ffff:10.0.0.0/104"], &["10.1.2.3", "::ffff:10.1.2.3"], &["11.0.0.0"]),
            (&["2001:db8::/64", "2001:db8:0:1::/64"], &["2001:db8:0:1:ff::"], &["2001:db8:0:2::"]),
            (&["10.0.0.0/8", "10.1.0.0/16", "12.0.0.0/8"], &["10.200.0.1", "12.0.0.1"], &["11.1.1.1"]),
            (&[], &[], &["1.2.3.4", "::1"]),
        ] {
            for address in inside {
                assert!(contains(texts, address), "{address} in {texts:?}");
            }
            for address in outside {
                assert!(!contains(texts, address), "{address} in {texts:?}");
            }
        }
    }

    #[test]
    fn who_is_denied_is_not_allowed_and_without_lists_everybody_is() {
        let admits = |allowed: &[&str], denied: &[&str], client: &str| {
            let ranges = SourceRanges::new(&networks(allowed), &networks(denied));
            ranges.is_none_or(|ranges| ranges.admit(client.parse().unwrap()))
        };
        assert!(admits(&[], &[], "192.0.2.1"));
        assert!(admits(&["192.0.2.0/24"], &[], "192.0.2.1"));
        assert!(!admits(&["192.0.2.0/24"], &[], "192.0.3.1"));
        assert!(!admits(&["192.0.2.0/24"], &["192.0.2.1/32"], "192.0.2.1"));
        assert!(admits(&[], &["192.0.2.1/32"], "192.0.2.2"));
        assert!(!admits(&[], &["192.0.2.1/32"], "::ffff:192.0.2.1"));
    }

    fn network() -> impl Strategy<Value = IpNet> {
        let v4 = (any::<[u8; 4]>(), 0..=32u8).prop_map(|(a, p)| IpNet::new(IpAddr::from(a), p).unwrap());
        let v6 = (any::<[u8; 16]>(), 0..=128u8).prop_map(|(a, p)| IpNet::new(IpAddr::from(a), p).unwrap());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn the_set_says_what_its_networks_say_one_by_one(
            networks in prop::collection::vec(network(), 0..12),
            addresses in prop::collection::vec(network(), 1..20),
        ) {
            let set = Networks::new(&networks);
            let edges = networks.iter().flat_map(|network| [network.network(), network.broadcast()]);
            for address in addresses.iter().map(IpNet::addr).chain(edges).map(|a| a.to_canonical()) {
                let one_by_one = networks.iter().any(|network| canonical_network(*network).contains(&address));
                prop_assert_eq!(set.contains(address), one_by_one, "{}", address);
            }
        }
    }
}
