//! A listener for a port with few clients: so many connections are open at once, more wait in the kernel's queue, and
//! no error ends it. The admin ports and the webhook accept by it; workers, which count otherwise, do not.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// How long to wait after a connection could not be accepted, as when there is no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket with places for connections.
pub struct LimitedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    /// What the port is called in the log.
    port: &'static str,
}

impl LimitedListener {
    pub fn new(listener: TcpListener, connections: usize, port: &'static str) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(connections)), port }
    }

    /// The next connection, and its place, which is free again once it is dropped. Nothing is lost by dropping the
    /// future.
    pub async fn accept(&self) -> (TcpStream, OwnedSemaphorePermit) {
        // The semaphore is never closed.
        let Ok(place) = self.places.clone().acquire_owned().await else { pending().await };
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, place),
                Err(error) => {
                    tracing::warn!(%error, port = self.port, "cannot accept a connection");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::eventually_async;

    #[tokio::test]
    async fn a_connection_more_waits_for_a_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = LimitedListener::new(listener, 1, "test");
        let _clients =
            [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let (_first, place) = listener.accept().await;
        let second = tokio::spawn(async move { listener.accept().await });
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "it has no place yet");
        drop(place);
        eventually_async("the second to have one", || second.is_finished()).await;
    }
}
