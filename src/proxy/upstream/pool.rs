//! Idle HTTP/1.1 connections of one worker, to be used again.
//!
//! A stack for each key: the connection used last is used next, so that the others can age and go. A connection
//! comes back with the last byte of its response, straight to its stack, without looking up the key.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;

use super::http1::Connection;
use crate::net::deadlines::{Deadlines, Tick};
use crate::snapshot::clusters::Endpoint;
use crate::tls::client::ClientTls;
use crate::tls::hbone_client::Via;

/// A connection that nobody needed for so long gives its buffers back: thousands may be idle.
const SHRINK_AFTER: Duration = Duration::from_secs(2);

/// What connections must have in common to stand in for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub endpoint: Endpoint,
    pub tls: Option<TlsIdentity>,
    pub protocol: Protocol,
    /// Through a tunnel of the mesh.
    pub via: Option<Via>,
}

/// Under which settings (verification, roots, client certificate) and for which name a connection was secured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsIdentity {
    pub tls: ClientTls,
    pub server_name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    Http1,
    Http2,
}

/// How much is kept. The numbers are for one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolLimits {
    pub idle_timeout: Duration,
    pub max_idle: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_secs(60), max_idle: 320 }
    }
}

/// How hard to look before an idle connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Trust what the runtime knows: the request can be sent again if it is wrong.
    Cheap,
    /// Ask the kernel: this request can be sent only once.
    Thorough,
}

/// Idle connections by key.
pub struct Pool {
    stacks: RefCell<AHashMap<Key, Rc<Stack>>>,
    shared: Rc<Shared>,
}

struct Shared {
    limits: Cell<PoolLimits>,
    deadlines: Deadlines,
    idle: Cell<usize>,
}

/// The idle connections of one key.
pub struct Stack {
    idle: RefCell<Vec<Idle>>,
    shared: Rc<Shared>,
}

struct Idle {
    connection: Box<Connection>,
    since: Tick,
}

impl Pool {
    pub fn new(limits: PoolLimits, deadlines: Deadlines) -> Self {
        let shared = Shared { limits: Cell::new(limits), deadlines, idle: Cell::new(0) };
        Self { stacks: RefCell::default(), shared: Rc::new(shared) }
    }

    /// What is kept from now on. Connections that are too many by then are closed by the next [`Self::sweep`].
    pub fn set_limits(&self, limits: PoolLimits) {
        self.shared.limits.set(limits);
    }

    /// The stack of `key`.
    pub fn stack(&self, key: &Key) -> Rc<Stack> {
        if let Some(stack) = self.stacks.borrow().get(key) {
            return stack.clone();
        }
        let stack = Rc::new(Stack { idle: RefCell::default(), shared: self.shared.clone() });
        self.stacks.borrow_mut().insert(key.clone(), stack.clone());
        stack
    }

    /// Closes what has been idle for too long or was closed by its backend. To be called every second or so.
    pub fn sweep(&self) {
        self.stacks.borrow_mut().retain(|_, stack| {
            stack.sweep();
            !stack.idle.borrow().is_empty() || Rc::strong_count(stack) > 1
        });
    }

    /// Connections that are idle now.
    pub fn idle(&self) -> usize {
        self.shared.idle.get()
    }
}

impl Stack {
    /// The connection used last that is still good. Those found dead on the way are closed.
    pub fn take(&self, check: Check) -> Option<Box<Connection>> {
        loop {
            let Idle { mut connection, since } = self.idle.borrow_mut().pop()?;
            self.shared.idle.set(self.shared.idle.get().saturating_sub(1));
            let fresh = self.shared.age(since) < self.shared.limits.get().idle_timeout;
            if fresh && connection.is_quiet(check) {
                return Some(connection);
            }
        }
    }

    /// Keeps `connection`, or closes it where the limits are reached.
    pub fn put(&self, connection: Box<Connection>) {
        let total = self.shared.idle.get();
        if total >= self.shared.limits.get().max_idle {
            return;
        }
        self.shared.idle.set(total + 1);
        self.idle.borrow_mut().push(Idle { connection, since: self.shared.deadlines.now() });
    }

    fn sweep(&self) {
        let limits = self.shared.limits.get();
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        // Those unused for longest are at the front.
        let too_many = self.shared.idle.get().saturating_sub(limits.max_idle).min(before);
        idle.drain(..too_many);
        idle.retain_mut(|entry| {
            let age = self.shared.age(entry.since);
            if age > SHRINK_AFTER {
                entry.connection.shrink();
            }
            age < limits.idle_timeout && entry.connection.is_quiet(Check::Cheap)
        });
        let closed = before - idle.len();
        self.shared.idle.set(self.shared.idle.get().saturating_sub(closed));
    }
}

impl Shared {
    fn age(&self, since: Tick) -> Duration {
        self.deadlines.now().since(since)
    }
}
