//! One worker generation as the supervisor sees it: a process and the channel to it.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::process::{Pid, Signal, WaitStatus, kill_process};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::channel::{AsyncChannel, Channel, ChannelError, MOST_DESCRIPTORS};
use super::keepsake::Keepsake;
use super::ledger::Ledger;
use super::lifecycle::Ended;
use super::messages::{FromGeneration, Listener, Start, ToGeneration};
use crate::settings::Settings;

/// What the supervisor knows of a generation.
#[derive(Debug)]
pub struct Generation {
    pub pid: u32,
    channel: Rc<AsyncChannel>,
    /// What it has published.
    pub ledger: Ledger,
    /// The sockets it asked for.
    pub listeners: Vec<Listener>,
    /// What it runs on, once it has said so.
    pub settings: Option<Box<Settings>>,
    /// Why it is not ready yet.
    pub waiting_for: Option<String>,
    /// Open connections, while it drains.
    pub connections: Option<u64>,
    /// When it is killed or given up, unless it has come further by then.
    pub deadline: Option<Instant>,
    /// Why it said that it would end.
    pub failure: Option<String>,
    /// How its process ended.
    pub exit: Option<WaitStatus>,
    /// All it said has been heard.
    pub heard_out: bool,
}

/// What comes from a generation.
#[derive(Debug)]
pub enum Heard {
    /// With the file descriptors that came with it.
    Message(FromGeneration, Vec<OwnedFd>),
    /// There will be nothing more.
    End,
}

impl Generation {
    /// Talks to the process `pid` by `channel`; what it says goes to `heard` under its number.
    pub fn new(
        number: u64,
        pid: u32,
        channel: Channel,
        ledger: Ledger,
        heard: mpsc::UnboundedSender<(u64, Heard)>,
    ) -> std::io::Result<Self> {
        let channel = Rc::new(channel.into_async()?);
        tokio::task::spawn_local(listen_to(number, channel.clone(), heard));
        Ok(Self {
            pid,
            channel,
            ledger,
            listeners: Vec::new(),
            settings: None,
            waiting_for: None,
            connections: None,
            deadline: None,
            failure: None,
            exit: None,
            heard_out: false,
        })
    }

    /// Tells it what it starts from, which it waits for.
    pub fn start(&self, start: Start, keepsake: Option<&Keepsake>) -> Result<(), ChannelError> {
        let descriptors: Vec<_> =
            [self.ledger.as_fd()].into_iter().chain(keepsake.map(AsFd::as_fd)).collect();
        self.channel.send(&ToGeneration::Start(start), &descriptors)
    }

    /// Tells it. A generation that cannot be told is stuck or gone; both show in other ways.
    pub fn tell(&self, message: &ToGeneration) {
        match self.channel.send(message, &[]) {
            Ok(()) => {}
            Err(error @ ChannelError::Closed) => {
                tracing::debug!(pid = self.pid, %error, "a generation is not told")
            }
            Err(error) => tracing::error!(pid = self.pid, %error, "a generation cannot be told"),
        }
    }

    /// Hands over the sockets of each listener.
    pub fn give<'a>(
        &self,
        listeners: impl Iterator<Item = (&'a Listener, &'a [std::net::TcpListener])>,
    ) -> Result<(), ChannelError> {
        let mut listeners = listeners.peekable();
        while let Some((listener, sockets)) = listeners.next() {
            let mut chunks = sockets.chunks(MOST_DESCRIPTORS).peekable();
            while let Some(chunk) = chunks.next() {
                let more = chunks.peek().is_some() || listeners.peek().is_some();
                let message = ToGeneration::Sockets { listener: listener.clone(), more };
                let descriptors: Vec<_> = chunk.iter().map(AsFd::as_fd).collect();
                self.channel.send(&message, &descriptors)?;
            }
        }
        Ok(())
    }

    pub fn kill(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        // It may have ended by itself in this moment; it has not been reaped yet, so the number is still its own.
        if self.exit.is_none()
            && let Some(pid) = pid
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// How it ended, once that is known for good.
    pub fn ended(&self, number: u64) -> Option<Ended> {
        let exit = self.exit.filter(|_| self.heard_out)?;
        let code = exit.exit_status().map(|code| u8::try_from(code).unwrap_or(1));
        let how = match (&self.failure, code, exit.terminating_signal()) {
            (Some(reason), ..) => reason.clone(),
            (None, Some(code), _) => format!("ended with exit code {code}"),
            (None, None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None, None) => "ended".into(),
        };
        Some(Ended { reason: format!("generation {number}: {how}"), code })
    }
}

async fn listen_to(number: u64, channel: Rc<AsyncChannel>, heard: mpsc::UnboundedSender<(u64, Heard)>) {
    loop {
        let said = match channel.receive().await {
            Ok(received) => Heard::Message(received.message, received.descriptors),
            Err(ChannelError::Closed | ChannelError::Io(_)) => Heard::End,
            Err(error) => {
                tracing::warn!(generation = number, %error, "message passed over");
                continue;
            }
        };
        let end = matches!(said, Heard::End);
        if heard.send((number, said)).is_err() || end {
            return;
        }
    }
}
