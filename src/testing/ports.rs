//! Ports for gateways that tests start: they are named on a command line before the gateway opens them, so nobody may
//! take them in between.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below what the kernel gives to connections and to sockets that ask for any port.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// Ports of 127.0.0.1 that are free, and that no other test of this process gets.
pub fn free<const N: usize>() -> [u16; N] {
    [(); N].map(|()| one())
}

/// The same as addresses.
pub fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    free().map(|port| (Ipv4Addr::LOCALHOST, port).into())
}

fn one() -> u16 {
    let count = u32::from(RANGE.end - RANGE.start);
    for _ in 0..count {
        // Processes begin at different places.
        let at = (process::id().wrapping_mul(97) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % count;
        let port = RANGE.start + at as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free")
}
