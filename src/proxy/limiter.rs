//! Counts what clients ask of Ingresses with limits: one table for all workers, for what a client may do must not depend
//! on the worker that the kernel gives its connections to.
//!
//! The table has a fixed size, whatever addresses there are: a client takes room only while it is ahead of its rate, which
//! for most is a moment, and where there is none left it takes that of whoever is ahead the least. Each small set of
//! clients has a lock that is held for a few comparisons. Requests of routes without limits touch nothing of this.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use http::StatusCode;

use crate::names::object::ObjectName;
use crate::snapshot::limits::{Limits, Rate};

/// With [`WAYS`], room for half a million clients in 9 MiB, which are taken when the first one comes.
const SETS: usize = 1 << 16;
const WAYS: usize = 8;
const SHARDS: usize = 256;

/// What is known of clients of Ingresses with limits.
pub struct Limiter {
    begun: Instant,
    /// Keyed at random, so that nobody can choose addresses that meet.
    keys: RandomState,
    rates: OnceLock<Box<[Mutex<Set>]>>,
    /// How many requests of a client are being answered, for those with any.
    running: OnceLock<Box<[Shard]>>,
}

/// Some clients, by key, with the number of their requests that are being answered.
type Shard = Mutex<HashMap<u64, u32>>;

/// Which limit a client is beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Requests,
    Connections,
}

/// What is counted.
#[derive(Clone, Copy, Hash)]
enum Counted {
    PerSecond,
    PerMinute,
    Connections,
}

#[derive(Default)]
struct Set([Client; WAYS]);

#[derive(Clone, Copy, Default)]
struct Client {
    key: u64,
    /// The time that its requests have taken ends here, in nanoseconds since the start.
    taken_until: u64,
}

/// The place of one request among those of its client, until it is dropped.
pub struct Slot {
    limiter: Arc<Limiter>,
    key: u64,
}

impl Default for Limiter {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            keys: RandomState::new(),
            rates: OnceLock::new(),
            running: OnceLock::new(),
        }
    }
}

impl Limiter {
    /// Counts a request of `client` to a route of `ingress`, or says which limit it is beyond.
    pub fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        ingress: &ObjectName,
        client: IpAddr,
        now: Instant,
    ) -> Result<Option<Slot>, Excess> {
        if limits.exempt.contains(client) {
            return Ok(None);
        }
        let client = network_of(client);
        let key = |counted: Counted| self.keys.hash_one((ingress, client, counted));
        let slot = match limits.connections {
            Some(most) => Some(self.enter(key(Counted::Connections), most.get()).ok_or(Excess::Connections)?),
            None => None,
        };
        let now = u64::try_from(now.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        for (rate, counted) in
            [(limits.per_second, Counted::PerSecond), (limits.per_minute, Counted::PerMinute)]
        {
            if let Some(rate) = rate
                && !self.charge(key(counted), rate, now)
            {
                return Err(Excess::Requests);
            }
        }
        Ok(slot)
    }

    fn charge(&self, key: u64, rate: Rate, now: u64) -> bool {
        let sets = self.rates.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        // There always is one.
        chosen(sets, key).is_none_or(|set| locked(set).charge(key, rate, now))
    }

    fn enter(self: &Arc<Self>, key: u64, most: u32) -> Option<Slot> {
        let mut running = locked(self.running(key)?);
        let count = running.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Slot { limiter: self.clone(), key })
    }

    fn running(&self, key: u64) -> Option<&Shard> {
        chosen(self.running.get_or_init(|| (0..SHARDS).map(|_| Mutex::default()).collect()), key)
    }
}

impl Set {
    /// The request takes its time after that of those before it, unless that is too far ahead.
    fn charge(&mut self, key: u64, rate: Rate, now: u64) -> bool {
        let known = self.0.iter().position(|client| client.key == key);
        let client = match known {
            Some(at) => self.0.get_mut(at),
            None => {
                let least = self.0.iter_mut().min_by_key(|client| client.taken_until);
                least.map(|client| {
                    *client = Client { key, taken_until: 0 };
                    client
                })
            }
        };
        let Some(client) = client else { return true };
        let begins = client.taken_until.max(now);
        if begins - now > rate.burst {
            return false;
        }
        client.taken_until = begins.saturating_add(rate.interval);
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(running) = self.limiter.running(self.key) else { return };
        let mut running = locked(running);
        if let Some(count) = running.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.key);
            }
        }
    }
}

impl Excess {
    /// A word for the access log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "rate_limited",
            Self::Connections => "connections_limited",
        }
    }

    /// The status with this code, of those that settings allow for it.
    pub fn status(code: u16) -> StatusCode {
        StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    }
}

/// Whom an address stands for: a customer has a /64 of IPv6 at least, and can choose among its addresses at will.
fn network_of(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

fn chosen<T>(places: &[T], key: u64) -> Option<&T> {
    let number = usize::try_from(key >> 32).unwrap_or_default();
    places.get(number.checked_rem(places.len())?)
}

/// What a thread that panicked has counted is as good as what others have.
fn locked<T>(place: &Mutex<T>) -> MutexGuard<'_, T> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::snapshot::limits::Stated;

    fn limits(per_second: u32, burst_multiplier: u32) -> Arc<Limits> {
        Limits::new(&Stated { per_second, burst_multiplier, ..Stated::default() }).unwrap()
    }

    struct World {
        limiter: Arc<Limiter>,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self { limiter: Arc::default(), now: Instant::now() }
        }

        /// How many of `wanted` requests at once are let through.
        fn admitted(&self, limits: &Limits, ingress: &str, client: &str, wanted: usize) -> usize {
            let ingress = ObjectName::new("shop", ingress);
            let client = client.parse().unwrap();
            let admit = |_: &usize| self.limiter.admit(limits, &ingress, client, self.now).is_ok();
            (0..wanted).filter(admit).count()
        }
    }

    #[test]
    fn a_client_has_its_rate_and_its_burst() {
        let mut world = World::new();
        let limits = limits(10, 2);
        // One that is due, and twenty ahead of their time.
        assert_eq!(world.admitted(&limits, "a", "192.0.2.1", 100), 21);
        world.now += Duration::from_millis(350);
        assert_eq!(world.admitted(&limits, "a", "192.0.2.1", 100), 3);
        world.now += Duration::from_secs(3600);
        assert_eq!(world.admitted(&limits, "a", "192.0.2.1", 100), 21);
        let strict = self::limits(10, 0);
        assert_eq!(world.admitted(&strict, "strict", "192.0.2.1", 100), 1);
    }

    #[test]
    fn clients_and_ingresses_count_apart_and_networks_of_ipv6_as_one() {
        let world = World::new();
        let limits = limits(1, 1);
        for (ingress, client, admitted) in [
            ("a", "192.0.2.1", 2),
            ("a", "::ffff:192.0.2.1", 0),
            ("a", "192.0.2.2", 2),
            ("b", "192.0.2.1", 2),
            ("a", "2001:db8::1", 2),
            ("a", "2001:db8::2:1", 0),
            ("a", "2001:db8:0:1::1", 2),
        ] {
            assert_eq!(world.admitted(&limits, ingress, client, 5), admitted, "{ingress} {client}");
        }
    }

    #[test]
    fn both_rates_count_and_exempt_clients_do_not() {
        let stated = Stated {
            per_second: 100,
            per_minute: 2,
            burst_multiplier: 1,
            exempt: vec!["10.0.0.0/8".parse().unwrap()],
            ..Stated::default()
        };
        let limits = Limits::new(&stated).unwrap();
        let world = World::new();
        assert_eq!(world.admitted(&limits, "a", "192.0.2.1", 50), 3);
        assert_eq!(world.admitted(&limits, "a", "10.1.2.3", 50), 50);
    }

    #[test]
    fn a_place_is_free_again_when_its_request_is_over() {
        let limits = Limits::new(&Stated { connections: 2, ..Stated::default() }).unwrap();
        let world = World::new();
        let ingress = ObjectName::new("shop", "a");
        let admit = |client: &str| {
            world.limiter.admit(&limits, &ingress, client.parse().unwrap(), world.now).map(Option::unwrap)
        };
        let (first, _second) = (admit("192.0.2.1").unwrap(), admit("192.0.2.1").unwrap());
        assert_eq!(admit("192.0.2.1").err(), Some(Excess::Connections));
        let other = admit("192.0.2.2").unwrap();
        drop(first);
        let third = admit("192.0.2.1").unwrap();
        assert!(admit("192.0.2.1").is_err());
        drop((third, _second, other));
        let left = |shards: &[Shard]| shards.iter().map(|s| locked(s).len()).sum::<usize>();
        assert_eq!(world.limiter.running.get().map(|shards| left(shards)), Some(0));
    }

    #[test]
    fn a_crowd_takes_no_room_from_who_is_far_ahead() {
        let mut set = Set::default();
        let rate = Rate { interval: 1_000, burst: 10_000 };
        let greedy = |set: &mut Set| (0..100).filter(|_| set.charge(1, rate, 0)).count();
        assert_eq!(greedy(&mut set), 11);
        for stranger in 2..10_000 {
            assert!(set.charge(stranger, rate, 0));
        }
        assert_eq!(greedy(&mut set), 0);
    }
}
