//! What the supervisor and its worker generations say to each other.
//!
//! After an upgrade the two may be of different versions: a message that one side does not know is passed over,
//! a field that is not there has its default, and what is here is never given another meaning.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

pub use crate::net::drain::Closing;
use crate::settings::{ChangeCounts, Settings};

/// What a generation tells the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "kebab-case")]
pub enum FromGeneration {
    /// These sockets are needed; answered by one [`ToGeneration::Sockets`] or more, or by a refusal.
    Listen { listeners: Vec<Listener> },
    /// What it runs on now: sent before it is ready, and after each change.
    Settings { settings: Box<Settings> },
    /// Why it is not ready yet.
    Waiting { reason: String },
    /// Its first snapshot is live: it could serve.
    Ready,
    /// It takes connections, from every socket it was given.
    Serving,
    /// These restart-requiring settings differ from what it started with; none when an edit was taken back.
    RestartWanted { keys: Vec<String> },
    /// The ticket keys, for its successor.
    Tickets { keys: TicketKeys },
    /// With it comes a [`Keepsake`](super::keepsake::Keepsake) for its successor.
    Keepsake,
    /// Connections that are still open, while it drains.
    Draining { connections: u64 },
    /// It ends because of this.
    Failed { reason: String },
    /// Something of another version.
    #[serde(other)]
    Unknown,
}

/// What the supervisor tells a generation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "kebab-case")]
pub enum ToGeneration {
    /// The first message. With it comes the [`Ledger`](super::ledger::Ledger) of the generation, and the
    /// [`Keepsake`](super::keepsake::Keepsake) of the one before, where that has left one.
    Start(Start),
    /// Some of the sockets of one listener, as file descriptors; `more` where others follow.
    Sockets { listener: Listener, more: bool },
    /// Sockets that were asked for cannot be had.
    Refused { reason: String },
    /// Put the sockets to use; the answer to [`FromGeneration::Ready`]. Whatever happens from here on, somebody will
    /// take connections from them.
    Serve,
    /// Take no more connections, finish the open ones, end.
    Drain { closing: Closing },
    /// How the generations are.
    Status(Status),
    /// Something of another version.
    #[serde(other)]
    Unknown,
}

/// What a generation starts from.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    pub generation: u64,
    /// Whether another generation serves until this one is ready, and the admin port with it.
    #[serde(rename = "succeeds")]
    pub takes_over: bool,
    /// The settings of a generation that crashed, for the one in its place; otherwise they are read.
    pub settings: Option<Box<Settings>>,
    pub tickets: Option<TicketKeys>,
    /// The number of the last snapshot that was served, to count on from.
    pub snapshot: u64,
    /// The changes before this generation, to count on from.
    pub changes: ChangeCounts,
}

/// Sockets of one address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    /// The setting that asks for it.
    pub port: Port,
    /// As the settings have it; port 0 is chosen by the system.
    pub address: SocketAddr,
    /// How many sockets are wanted.
    pub sockets: usize,
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    HttpPort,
    HttpsPort,
    MeshPort,
    HbonePort,
    AdminPort,
    CaPort,
    WebhookPort,
}

/// The generations there are, for `/api/v1/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Process id of the supervisor.
    pub supervisor: u32,
    /// Oldest first.
    pub generations: Arc<[GenerationStatus]>,
    /// Why the last new generation was given up, or the crash that nothing has taken the place of yet.
    pub last_restart_error: Option<String>,
    /// The last crash of a generation that served, repaired or not.
    pub last_crash: Option<Crash>,
}

/// The end of a generation that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    pub reason: String,
    /// In seconds since the Unix epoch.
    pub at: i64,
}

/// One generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    pub generation: u64,
    pub pid: u32,
    pub state: GenerationState,
    /// Open connections of one that drains.
    pub connections: Option<u64>,
    /// What one that starts waits for.
    pub waiting_for: Option<String>,
}

/// Where a generation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationState {
    Starting,
    Serving,
    Draining,
}

/// Session ticket keys on their way to the next generation, in base64. They are in no log and no error, and wiped
/// when dropped.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TicketKeys(String);

impl Drop for TicketKeys {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl Port {
    /// The settings key.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HttpPort => "http-port",
            Self::HttpsPort => "https-port",
            Self::MeshPort => "mesh-port",
            Self::HbonePort => "hbone-port",
            Self::AdminPort => "admin-port",
            Self::CaPort => "ca-port",
            Self::WebhookPort => "webhook-port",
        }
    }
}

impl TicketKeys {
    /// Keys as `Tickets::keys_for_successor` writes them.
    pub fn new(keys: String) -> Self {
        Self(keys)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_version_says_is_passed_over() {
        let said: FromGeneration = serde_json::from_str(r#"{"says":"something-new","more":1}"#).unwrap();
        assert!(matches!(said, FromGeneration::Unknown));
        let said: ToGeneration =
            serde_json::from_str(r#"{"says":"start","generation":3,"succeeds":true,"news":1}"#).unwrap();
        assert!(matches!(said, ToGeneration::Start(Start { generation: 3, takes_over: true, .. })));
    }

    #[test]
    fn keys_are_not_shown() {
        let tickets = Some(TicketKeys("c2VjcmV0".into()));
        let start = ToGeneration::Start(Start { tickets, ..Start::default() });
        assert!(!format!("{start:?}").contains("c2VjcmV0"));
    }

    #[test]
    fn settings_arrive_as_they_were_sent() {
        let settings = Box::new(Settings { workers: 7, http_port: 81, ..Settings::default() });
        let sent = serde_json::to_string(&FromGeneration::Settings { settings: settings.clone() }).unwrap();
        match serde_json::from_str(&sent).unwrap() {
            FromGeneration::Settings { settings: arrived } => assert_eq!(arrived, settings),
            other => panic!("{other:?}"),
        }
    }
}
