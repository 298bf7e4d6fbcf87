//! A generation's end of the channel to its supervisor. The app holds it: it asks for sockets, says when it could
//! serve, and is told when to begin and when to end.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsFd;

use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

use super::channel::{AsyncChannel, Channel, ChannelError, Received};
use super::keepsake::Keepsake;
use super::ledger::{Entry, Ledger};
use super::messages::{FromGeneration, Listener, Start, ToGeneration};

/// The connection of this process to its supervisor.
#[derive(Debug)]
pub struct Link {
    channel: Channel,
    /// A supervisor of another version may have none.
    ledger: Option<Ledger>,
    keepsake: Option<Keepsake>,
}

/// What went wrong between a generation and its supervisor.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("this command is started by portcullis serve, and of no use without it")]
    NoSupervisor,
    #[error("{0}")]
    Refused(String),
    #[error("the supervisor sent something unexpected")]
    Unexpected,
    #[error("supervisor: {0}")]
    Channel(#[from] ChannelError),
}

impl Link {
    /// Takes the channel that this process was started with, and what it is to start from.
    pub fn connect() -> Result<(Self, Start), LinkError> {
        let stdin = io::stdin();
        if !matches!(socket_type(&stdin), Ok(SocketType::SEQPACKET)) {
            return Err(LinkError::NoSupervisor);
        }
        let end = stdin.as_fd().try_clone_to_owned().map_err(ChannelError::Io)?;
        let channel = Channel::new(end);
        let Received { message, descriptors } = channel.receive()?;
        let ToGeneration::Start(start) = message else { return Err(LinkError::Unexpected) };
        let mut descriptors = descriptors.into_iter();
        let ledger = descriptors.next().map(Ledger::from);
        let keepsake = descriptors.next().map(Keepsake::from);
        Ok((Self { channel, ledger, keepsake }, start))
    }

    /// The sockets for `listeners`, in their order. Waits for the answer.
    pub fn listen(&self, listeners: Vec<Listener>) -> Result<Vec<Vec<TcpListener>>, LinkError> {
        let mut sockets: Vec<Vec<TcpListener>> = listeners.iter().map(|_| Vec::new()).collect();
        self.channel.send(&FromGeneration::Listen { listeners: listeners.clone() }, &[])?;
        loop {
            let Received { message, descriptors } = self.channel.receive()?;
            match message {
                ToGeneration::Sockets { listener, more } => {
                    let place = listeners.iter().zip(&mut sockets).find(|(wanted, _)| **wanted == listener);
                    let (_, place) = place.ok_or(LinkError::Unexpected)?;
                    place.extend(descriptors.into_iter().map(TcpListener::from));
                    if !more {
                        return Ok(sockets);
                    }
                }
                ToGeneration::Refused { reason } => return Err(LinkError::Refused(reason)),
                ToGeneration::Status(_) | ToGeneration::Unknown => {}
                _ => return Err(LinkError::Unexpected),
            }
        }
    }

    /// Tells the supervisor. That it has gone is noticed by [`Messages::next`].
    pub fn tell(&self, message: &FromGeneration) {
        match self.channel.send(message, &[]) {
            Ok(()) => {}
            Err(error @ ChannelError::Closed) => tracing::debug!(%error, "the supervisor is not told"),
            Err(error) => tracing::error!(%error, "the supervisor cannot be told"),
        }
    }

    /// What the generation before has left to this one.
    pub fn keepsake(&self) -> Option<&Keepsake> {
        self.keepsake.as_ref()
    }

    /// Leaves something to the next generation, in the place of what was left before. Says whether it arrived.
    pub fn leave(&self, keepsake: &Keepsake) -> bool {
        let sent = self.channel.send(&FromGeneration::Keepsake, &[keepsake.as_fd()]);
        sent.inspect_err(|error| tracing::debug!(%error, "the supervisor cannot be told")).is_ok()
    }

    /// Notes what is served by now, for the generation after this one to count on from.
    pub fn note(&self, entry: &Entry) {
        if let Some(ledger) = &self.ledger
            && let Err(error) = ledger.write(entry)
        {
            tracing::debug!(%error, "the ledger cannot be written");
        }
    }

    /// What the supervisor says from now on. To be called in the runtime of the app.
    pub fn messages(&self) -> io::Result<Messages> {
        Ok(Messages(self.channel.try_clone()?.into_async()?))
    }
}

/// Messages from the supervisor.
#[derive(Debug)]
pub struct Messages(AsyncChannel);

impl Messages {
    /// The next one; `None` when the supervisor has gone. May be dropped and called anew at any time.
    pub async fn next(&self) -> Option<ToGeneration> {
        loop {
            match self.0.receive().await {
                Ok(received) => return Some(received.message),
                Err(ChannelError::Closed | ChannelError::Io(_)) => return None,
                Err(error) => tracing::warn!(%error, "message of the supervisor passed over"),
            }
        }
    }
}
