//! Tells the connections of one worker that it is going away: they finish what they are at and take nothing
//! new. Asking costs a connection one flag read; being told costs it a waker in a table.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use serde::{Deserialize, Serialize};
use slab::Slab;

/// The listening sockets that nobody takes connections from any more after a drain, by their local addresses.
/// What is queued on them has to be taken before they are closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closing {
    All,
    /// Another process goes on with these.
    AllBut(Vec<SocketAddr>),
}

impl Closing {
    /// Whether sockets of `address` are among them.
    pub fn includes(&self, address: SocketAddr) -> bool {
        match self {
            Self::All => true,
            Self::AllBut(addresses) => !addresses.contains(&address),
        }
    }
}

/// One for each worker. Clones are the same.
#[derive(Clone, Default)]
pub struct Drain(Rc<State>);

#[derive(Default)]
struct State {
    started: Cell<bool>,
    wakers: RefCell<Slab<Waker>>,
}

impl Drain {
    /// Whether connections should end.
    pub fn started(&self) -> bool {
        self.0.started.get()
    }

    /// Tells every connection.
    pub fn start(&self) {
        self.0.started.set(true);
        let wakers: Vec<_> = self.0.wakers.borrow_mut().iter().map(|(_, waker)| waker.clone()).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What one connection waits with.
    pub fn watch(&self) -> DrainWatch {
        DrainWatch { drain: self.clone(), slot: None }
    }
}

/// One connection's place in the table; leaves it when dropped.
pub struct DrainWatch {
    drain: Drain,
    slot: Option<usize>,
}

impl DrainWatch {
    pub fn started(&self) -> bool {
        self.drain.started()
    }

    /// Ready once the drain has started.
    pub fn poll_started(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain.started() {
            return Poll::Ready(());
        }
        let mut wakers = self.drain.0.wakers.borrow_mut();
        match self.slot.and_then(|slot| wakers.get_mut(slot)) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.slot = Some(wakers.insert(cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for DrainWatch {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.drain.0.wakers.borrow_mut().try_remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn those_that_wait_are_told_and_those_that_left_leave_nothing() {
        let drain = Drain::default();
        let mut left = drain.watch();
        assert!(poll_fn(|cx| Poll::Ready(left.poll_started(cx))).await.is_pending());
        drop(left);
        assert!(drain.0.wakers.borrow().is_empty());

        let mut watch = drain.watch();
        tokio::join!(poll_fn(|cx| watch.poll_started(cx)), async { drain.start() });
        assert!(watch.started());
    }
}
