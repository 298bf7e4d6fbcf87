//! Bounds the handshakes that one worker has under way. When there are too many, the one that has been at it
//! longest is given up: an honest client takes milliseconds and is never the oldest of hundreds, so clients
//! that hold handshakes open only crowd out each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// The handshakes of one worker, oldest first.
#[derive(Default)]
pub struct Handshakes(RefCell<VecDeque<Weak<Slot>>>);

#[derive(Default)]
struct Slot {
    given_up: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Others came later and needed the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("crowded out by later handshakes")]
pub struct CrowdedOut;

impl Handshakes {
    /// Runs one handshake among at most `limit`.
    pub async fn run<T>(&self, limit: usize, handshake: impl Future<Output = T>) -> Result<T, CrowdedOut> {
        let slot = self.enter(limit);
        let mut handshake = pin!(handshake);
        poll_fn(|cx| {
            if let Poll::Ready(done) = handshake.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if slot.given_up.get() {
                return Poll::Ready(Err(CrowdedOut));
            }
            let mut waker = slot.waker.borrow_mut();
            match &mut *waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }

    fn enter(&self, limit: usize) -> Rc<Slot> {
        let mut slots = self.0.borrow_mut();
        // Those that are over are still listed; the oldest of them at the front go for nothing.
        while slots.front().is_some_and(|slot| slot.strong_count() == 0) {
            slots.pop_front();
        }
        if slots.len() >= limit.max(1) {
            slots.retain(|slot| slot.strong_count() > 0);
        }
        while slots.len() >= limit.max(1) {
            if let Some(oldest) = slots.pop_front().and_then(|slot| slot.upgrade()) {
                oldest.given_up.set(true);
                if let Some(waker) = oldest.waker.take() {
                    waker.wake();
                }
            }
        }
        let slot = Rc::new(Slot::default());
        slots.push_back(Rc::downgrade(&slot));
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_oldest_makes_room() {
        let handshakes = Handshakes::default();
        let (first, second, third) = tokio::join!(
            handshakes.run(2, pending::<()>()),
            async {
                tokio::time::timeout(std::time::Duration::from_millis(50), handshakes.run(2, pending::<()>()))
                    .await
            },
            async {
                tokio::task::yield_now().await;
                handshakes.run(2, ready(3)).await
            },
        );
        assert_eq!(first, Err(CrowdedOut));
        assert!(second.is_err(), "the younger one went on");
        assert_eq!(third, Ok(3));
    }

    #[tokio::test]
    async fn those_that_are_over_take_no_room() {
        let handshakes = Handshakes::default();
        for n in 0..100 {
            assert_eq!(handshakes.run(1, ready(n)).await, Ok(n));
        }
        assert!(handshakes.0.borrow().len() <= 1);
    }
}
