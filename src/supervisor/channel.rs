//! What the supervisor and a worker generation talk over: a pair of connected Unix sockets that keep messages
//! apart (`SOCK_SEQPACKET`), so that there is no length prefix to get wrong, and that pass file descriptors.
//!
//! One message is one JSON document. A long one, settings with thousands of networks for instance, lies in shared
//! memory, whose descriptor is sent in its place. Sending never waits: the other side may be stuck, and this one has a
//! gateway to run. Buffers are wiped, because session ticket keys pass through them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::memory;

/// Bytes of a message as it goes through the socket.
const LARGEST_BY_SOCKET: usize = 64 * 1024;
/// Bytes of any message.
pub const LARGEST: usize = 64 * 1024 * 1024;
/// File descriptors that one message may carry; the kernel allows 253.
pub const MOST_DESCRIPTORS: usize = 128;

/// Stands for a message that lies in the memory behind the first descriptor. No JSON begins with this byte.
const IN_MEMORY: &[u8] = &[0];

/// One more than a message may carry, for the memory that it lies in.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS + 1));

/// One end.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message, and the file descriptors that came with it.
#[derive(Debug)]
pub struct Received<M> {
    pub message: M,
    pub descriptors: Vec<OwnedFd>,
}

/// Why a message did not get through. None of these quotes a message: it could hold a key.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the other side has gone")]
    Closed,
    #[error("the other side does not read what it is sent")]
    Full,
    #[error("a message is longer than {LARGEST} bytes or carries more than {MOST_DESCRIPTORS} descriptors")]
    TooLarge,
    #[error("a message that makes no sense ({0:?} error in column {1})")]
    Malformed(serde_json::error::Category, usize),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Channel {
    /// Two ends, connected.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(a), Self(b)))
    }

    /// The end that this process was started with.
    pub fn new(end: OwnedFd) -> Self {
        Self(end)
    }

    /// The end, for a process that is being started with it.
    pub fn into_inner(self) -> OwnedFd {
        self.0
    }

    /// Sends `message` with `descriptors`, which stay open here, or not at all.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        send(self.0.as_fd(), message, descriptors)
    }

    /// The next message; `None` where none has come yet.
    pub fn try_receive<M: DeserializeOwned>(&self) -> Result<Option<Received<M>>, ChannelError> {
        try_receive(self.0.as_fd())
    }

    /// Waits for the next message, and the whole thread with it.
    pub fn receive<M: DeserializeOwned>(&self) -> Result<Received<M>, ChannelError> {
        loop {
            if let Some(received) = self.try_receive()? {
                return Ok(received);
            }
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(ChannelError::Io(error.into())),
            }
        }
    }

    /// The same end once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }

    /// This end in the current tokio runtime.
    pub fn into_async(self) -> io::Result<AsyncChannel> {
        // tokio has no type for these sockets; of this one only the waiting is used.
        Ok(AsyncChannel(UnixStream::from_std(self.0.into())?))
    }
}

/// One end that waits without holding up its thread.
#[derive(Debug)]
pub struct AsyncChannel(UnixStream);

impl AsyncChannel {
    /// Sends as [`Channel::send`] does, at once.
    pub fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        send(self.0.as_fd(), message, descriptors)
    }

    /// The next message. Nothing is lost when the future is dropped.
    pub async fn receive<M: DeserializeOwned>(&self) -> Result<Received<M>, ChannelError> {
        loop {
            self.0.readable().await?;
            let mut result = Ok(None);
            let done = self.0.try_io(Interest::READABLE, || {
                result = try_receive(self.0.as_fd());
                match result {
                    Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            match (done, result?) {
                (Ok(()), Some(received)) => return Ok(received),
                (Err(error), _) if error.kind() != io::ErrorKind::WouldBlock => return Err(error.into()),
                _ => {}
            }
        }
    }
}

fn send(
    channel: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    let bytes = Zeroizing::new(serde_json::to_vec(message).map_err(|error| malformed(&error))?);
    if bytes.len() > LARGEST || descriptors.len() > MOST_DESCRIPTORS {
        return Err(ChannelError::TooLarge);
    }
    if bytes.len() <= LARGEST_BY_SOCKET {
        return send_bytes(channel, &bytes, descriptors);
    }
    let memory = memory::holding("portcullis-message", &bytes)?;
    let descriptors: Vec<_> = [memory.as_fd()].into_iter().chain(descriptors.iter().copied()).collect();
    send_bytes(channel, IN_MEMORY, &descriptors)
}

fn send_bytes(
    channel: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), ChannelError> {
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ChannelError::TooLarge);
    }
    match sendmsg(channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Err(ChannelError::Closed),
        Err(Errno::AGAIN) => Err(ChannelError::Full),
        Err(error) => Err(ChannelError::Io(error.into())),
    }
}

fn try_receive<M: DeserializeOwned>(channel: BorrowedFd<'_>) -> Result<Option<Received<M>>, ChannelError> {
    let mut bytes = Zeroizing::new(vec![0; LARGEST_BY_SOCKET]);
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        retry_on_intr(|| recvmsg(channel, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags));
    let received = match received {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Ok(None),
        Err(Errno::CONNRESET) => return Err(ChannelError::Closed),
        Err(error) => return Err(ChannelError::Io(error.into())),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    // Messages are never empty: this is the end.
    if received.bytes == 0 {
        return Err(ChannelError::Closed);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(ChannelError::TooLarge);
    }
    bytes.truncate(received.bytes);
    if *bytes == IN_MEMORY && !descriptors.is_empty() {
        let memory = File::from(descriptors.remove(0));
        if memory.metadata()?.len() > LARGEST as u64 {
            return Err(ChannelError::TooLarge);
        }
        bytes = memory::contents(&memory)?;
    }
    let message = serde_json::from_slice(&bytes);
    Ok(Some(Received { message: message.map_err(|error| malformed(&error))?, descriptors }))
}

fn malformed(error: &serde_json::Error) -> ChannelError {
    ChannelError::Malformed(error.classify(), error.column())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::net::send as send_raw;

    use super::*;
    use crate::supervisor::messages::{FromGeneration, ToGeneration};

    #[test]
    fn messages_arrive_one_by_one_with_their_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        a.send(&"first", &[]).unwrap();
        a.send(&"second", &[socket.as_fd(), socket.as_fd()]).unwrap();
        let first: Received<String> = b.receive().unwrap();
        assert_eq!((first.message.as_str(), first.descriptors.len()), ("first", 0));
        let second: Received<String> = b.receive().unwrap();
        assert_eq!((second.message.as_str(), second.descriptors.len()), ("second", 2));
        let same = TcpListener::from(second.descriptors.into_iter().next().unwrap());
        assert_eq!(same.local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(b.try_receive::<String>().unwrap().is_none());
        drop(a);
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Closed)));
        assert!(matches!(b.send(&"x", &[]), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_long_message_arrives_whole_and_in_its_turn() {
        let (a, b) = Channel::pair().unwrap();
        let long = "x".repeat(LARGEST_BY_SOCKET * 5);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        a.send(&"before", &[]).unwrap();
        a.send(&long, &[socket.as_fd(); MOST_DESCRIPTORS]).unwrap();
        a.send(&"after", &[]).unwrap();
        assert_eq!(b.receive::<String>().unwrap().message, "before");
        let received = b.receive::<String>().unwrap();
        assert!(received.message == long);
        assert_eq!(received.descriptors.len(), MOST_DESCRIPTORS);
        assert_eq!(b.receive::<String>().unwrap().message, "after");
    }

    #[test]
    fn memory_that_is_too_large_or_missing_is_no_message() {
        let (a, b) = Channel::pair().unwrap();
        let memory = memfd_create("large", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&memory, LARGEST as u64 + 1).unwrap();
        send_bytes(a.0.as_fd(), IN_MEMORY, &[memory.as_fd()]).unwrap();
        assert!(matches!(b.receive::<String>(), Err(ChannelError::TooLarge)));
        send_bytes(a.0.as_fd(), IN_MEMORY, &[]).unwrap();
        assert!(matches!(b.receive::<String>(), Err(ChannelError::Malformed(..))));
    }

    #[test]
    fn what_is_too_long_is_neither_sent_nor_taken_for_a_message() {
        let (a, b) = Channel::pair().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(a.send(&1, &[socket.as_fd(); MOST_DESCRIPTORS + 1]), Err(ChannelError::TooLarge)));
        a.send(&1, &[socket.as_fd(); MOST_DESCRIPTORS]).unwrap();
        assert_eq!(b.receive::<u8>().unwrap().descriptors.len(), MOST_DESCRIPTORS);

        let longer = vec![b' '; LARGEST_BY_SOCKET + 1];
        send_raw(&a.0, &longer, SendFlags::empty()).unwrap();
        assert!(matches!(b.receive::<String>(), Err(ChannelError::TooLarge)));
        a.send(&1, &[]).unwrap();
        assert_eq!(b.receive::<u8>().unwrap().message, 1);
    }

    #[test]
    fn sending_to_one_who_does_not_read_never_waits() {
        let (a, _b) = Channel::pair().unwrap();
        let text = "x".repeat(LARGEST_BY_SOCKET / 2);
        let mut sent = 0;
        while a.send(&text, &[]).is_ok() {
            sent += 1;
            assert!(sent < 10_000);
        }
        assert!(matches!(a.send(&text, &[]), Err(ChannelError::Full)));
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_an_error_at_worst(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let (a, b) = Channel::pair().unwrap();
            send_raw(&a.0, &bytes, SendFlags::empty()).unwrap();
            let _ = b.receive::<ToGeneration>();
            send_raw(&a.0, &bytes, SendFlags::empty()).unwrap();
            let _ = b.receive::<FromGeneration>();
            a.send(&7, &[]).unwrap();
            prop_assert_eq!(b.receive::<u8>().unwrap().message, 7);
        }

        #[test]
        fn a_damaged_message_is_an_error_at_worst(at in 0usize..200, byte in any::<u8>()) {
            let (a, b) = Channel::pair().unwrap();
            let waiting = FromGeneration::Waiting { reason: "the first list of Secrets".into() };
            let mut bytes = serde_json::to_vec(&waiting).unwrap();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            send_raw(&a.0, &bytes, SendFlags::empty()).unwrap();
            let _ = b.receive::<FromGeneration>();
        }
    }
}
