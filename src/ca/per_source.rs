//! A share for each address, of whatever is scarce.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// How many places each address has taken; clones share them.
#[derive(Clone, Debug)]
pub struct PerSource {
    limit: usize,
    taken: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A place, free again once it is dropped.
#[derive(Debug)]
pub struct Place {
    of: PerSource,
    source: IpAddr,
}

impl PerSource {
    /// At most `limit` places for one address; of IPv6 the first 64 bits are one.
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: Arc::default() }
    }

    /// A place, unless the address has all of its own.
    pub fn enter(&self, address: IpAddr) -> Option<Place> {
        let source = network(address);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(source).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(Place { of: self.clone(), source })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.source) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.source)),
        }
    }
}

/// Whoever has an IPv6 address has the rest of its /64 as well.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_takes_its_share_and_leaves_the_rest() {
        let sources = PerSource::new(2);
        let enter = |address: &str| sources.enter(address.parse().unwrap());
        let first = [enter("192.0.2.1"), enter("::ffff:192.0.2.1")];
        assert!(first.iter().all(Option::is_some));
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        let network = [enter("2001:db8::1"), enter("2001:db8::2")];
        assert!(network.iter().all(Option::is_some) && enter("2001:db8::3").is_none());
        assert!(enter("2001:db8:0:1::1").is_some());
        drop(first);
        assert!(enter("192.0.2.1").is_some());
        drop(network);
        assert!(sources.taken.lock().unwrap().is_empty(), "nothing is kept of those who left");
    }
}
