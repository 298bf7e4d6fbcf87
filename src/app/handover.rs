//! How a worker generation stands to its supervisor and to the generation before it: what it was told at the start,
//! and what it has told so far.

use std::rc::Rc;

use crate::settings::choices::RestartMode;
use crate::settings::{Change, Settings};
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start, Status, TicketKeys};
use crate::tls::tickets::Tickets;

/// How this generation stands to its supervisor and to the generation before it.
pub(super) struct Handover {
    pub link: Rc<Link>,
    pub generation: u64,
    /// Another generation serves until this one does, and has the admin port.
    pub takes_over: bool,
    /// The number of the last snapshot before this generation.
    pub snapshot: u64,
    /// The supervisor knows that this one is ready.
    pub ready_sent: bool,
    /// The supervisor has said that this one shall serve.
    pub serving: bool,
    /// Why this one is not ready, as the supervisor was told last.
    pub waiting: Option<String>,
    /// What all generations are doing, as the supervisor told last.
    pub status: Status,
    /// The restart-requiring changes that the supervisor was told of last, and whether it may act on them. While
    /// this generation does not serve it would not listen.
    pub wanted: Vec<Change>,
    pub mode: RestartMode,
}

impl Handover {
    pub fn new(link: Rc<Link>, start: &Start) -> Self {
        let mode = RestartMode::Automatic;
        let (ready_sent, serving, waiting) = (false, false, None);
        let (status, wanted) = (Status::default(), Vec::new());
        let (generation, takes_over, snapshot) = (start.generation, start.takes_over, start.snapshot);
        Self { link, generation, takes_over, snapshot, ready_sent, serving, waiting, status, wanted, mode }
    }

    pub fn tell_settings(&self, settings: &Settings) {
        self.link.tell(&FromGeneration::Settings { settings: Box::new(settings.clone()) });
    }

    pub fn tell_tickets(&self, tickets: &Tickets) {
        self.link.tell(&FromGeneration::Tickets { keys: TicketKeys::new(tickets.keys_for_successor()) });
    }

    /// Tells that what is pending, or whether it may be restarted for it, has changed.
    pub fn tell_pending(&mut self, pending: &[Change], mode: RestartMode) {
        if self.wanted != pending || self.mode != mode {
            (self.wanted, self.mode) = (pending.to_vec(), mode);
            if self.serving {
                self.tell_wanted();
            }
        }
    }

    pub fn tell_wanted(&self) {
        let keys = self.wanted.iter().map(|change| change.key.to_owned()).collect();
        self.link.tell(&FromGeneration::RestartWanted { keys });
    }

    /// Tells what is waited for, for the case that it never comes.
    pub fn tell_waiting(&mut self, reason: Option<String>) {
        if let Some(reason) = reason.filter(|_| !self.ready_sent)
            && self.waiting.as_ref() != Some(&reason)
        {
            self.link.tell(&FromGeneration::Waiting { reason: reason.clone() });
            self.waiting = Some(reason);
        }
    }
}
