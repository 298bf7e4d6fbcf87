//! Which generation starts, serves, drains and is given up, decided without doing any of it: what happened comes
//! in, what has to be done goes out. The supervisor does it.
//!
//! Invariants, whatever happens in whatever order: no generation is told to drain before another one takes
//! connections (but at the very end), and once one has served there is always one that serves, one that is being
//! started in its place, or a start that is due.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::messages::GenerationState;

/// A generation that has served for so long did not crash because of how it started.
const STABLE: Duration = Duration::from_secs(10);
/// The second crash in a row is waited out for so long, each further one twice as long as the one before…
const BACKOFF: Duration = Duration::from_millis(100);
/// …and none longer than this.
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

/// All generations that live.
#[derive(Debug, Default)]
pub struct Lifecycle {
    generations: BTreeMap<u64, State>,
    /// The number of the last one that was started.
    last: u64,
    /// How many have been ready.
    order: u64,
    /// Crashes in a row.
    crashes: u32,
    stopping: bool,
    /// A new generation is to take over from the one that is being started.
    wanted: bool,
    /// Why the last candidate was given up.
    given_up: Option<String>,
    /// The last crash, until something serves in place of what crashed.
    crash: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting(Role),
    /// Ready since then. The one of the highest `order` was ready last.
    Serving {
        since: Instant,
        order: u64,
    },
    Draining,
    /// Being killed; how it ends is of no interest.
    Abandoned,
}

/// Why a generation is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// There is no other.
    First,
    /// To take over from the one that serves.
    Candidate,
    /// In place of one that crashed, and just like it.
    Replacement,
}

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Start(u64, Role),
    /// Call [`Lifecycle::replace`] after this time.
    ReplaceIn(Duration),
    /// Let it take connections.
    Serve(u64),
    Drain(u64),
    Kill(u64),
    /// All is over.
    Exit(Exit),
}

/// How the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// As it was told to.
    Stopped,
    /// The first generation could not start, and ended with this code.
    Failed(u8),
}

/// How a generation's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub reason: String,
    /// Its exit code, if it was not killed by a signal.
    pub code: Option<u8>,
}

impl Lifecycle {
    /// Starts the first generation.
    pub fn start(&mut self) -> Vec<Action> {
        vec![self.begin(Role::First)]
    }

    /// A new generation shall take over. One that is on its way already is given up: it may have read what is
    /// no longer true. Where none serves, the one that is being started has its try first; while a crash is waited
    /// out the new one does not wait, for it may be what ends the crashes.
    pub fn restart(&mut self) -> Vec<Action> {
        if self.stopping {
            return Vec::new();
        }
        if !self.is_serving() && self.is_replacing() {
            self.wanted = true;
            return Vec::new();
        }
        let mut actions = self.abandon(Role::Candidate);
        actions.push(self.begin(Role::Candidate));
        actions
    }

    /// No new generation is needed any more.
    pub fn no_restart(&mut self) -> Vec<Action> {
        if self.is_serving() {
            self.given_up = None;
            return self.abandon(Role::Candidate);
        }
        Vec::new()
    }

    /// A generation cannot be asked for now, for this reason.
    pub fn refuse(&mut self, reason: &str) {
        self.given_up = Some(reason.to_owned());
    }

    /// The generation could serve.
    pub fn ready(&mut self, number: u64, now: Instant) -> Vec<Action> {
        let Some(State::Starting(role)) = self.generations.get(&number).copied() else { return Vec::new() };
        self.order += 1;
        self.generations.insert(number, State::Serving { since: now, order: self.order });
        self.crash = None;
        let mut actions = vec![Action::Serve(number)];
        let wanted = std::mem::take(&mut self.wanted);
        if role == Role::Candidate {
            self.given_up = None;
            // What was to be replaced has a successor.
            actions.extend(self.abandon(Role::Replacement));
        } else if wanted {
            actions.extend(self.restart());
        }
        actions
    }

    /// The generation takes connections: those that were ready before it are no longer needed.
    pub fn accepts(&mut self, number: u64) -> Vec<Action> {
        let Some(State::Serving { order: last, .. }) = self.generations.get(&number).copied() else {
            return Vec::new();
        };
        let generations = self.generations.iter_mut();
        let before =
            generations.filter(|(_, state)| matches!(state, State::Serving { order, .. } if *order < last));
        before.map(|(number, state)| drain(*number, state)).collect()
    }

    /// The candidate was not ready in time. One that replaces nothing may take as long as it needs.
    pub fn timed_out(&mut self, number: u64, reason: String) -> Vec<Action> {
        match self.generations.get_mut(&number) {
            Some(state @ State::Starting(Role::Candidate)) => *state = State::Abandoned,
            _ => return Vec::new(),
        }
        self.given_up = Some(reason);
        vec![Action::Kill(number)]
    }

    /// The process of the generation has ended.
    pub fn ended(&mut self, number: u64, ended: &Ended, now: Instant) -> Vec<Action> {
        let state = self.generations.remove(&number);
        if self.stopping {
            return self.exit_when_empty();
        }
        match state {
            Some(State::Starting(Role::First)) => match ended.code {
                Some(code) => vec![Action::Exit(Exit::Failed(code))],
                None => self.crashed(ended),
            },
            Some(State::Starting(Role::Candidate)) => {
                self.given_up = Some(ended.reason.clone());
                Vec::new()
            }
            Some(State::Starting(Role::Replacement)) => self.crashed(ended),
            Some(State::Serving { since, .. }) => {
                if now.saturating_duration_since(since) >= STABLE {
                    self.crashes = 0;
                }
                self.crashed(ended)
            }
            Some(State::Draining | State::Abandoned) | None => Vec::new(),
        }
    }

    /// The time of [`Action::ReplaceIn`] is over.
    pub fn replace(&mut self) -> Vec<Action> {
        if self.stopping || self.is_replacing() {
            return Vec::new();
        }
        let role = if self.order > 0 { Role::Replacement } else { Role::First };
        vec![self.begin(role)]
    }

    /// The gateway shall end: open connections may finish. Asked a second time, they may not.
    pub fn stop(&mut self) -> Vec<Action> {
        let again = std::mem::replace(&mut self.stopping, true);
        let mut actions = Vec::new();
        for (number, state) in &mut self.generations {
            match state {
                State::Serving { .. } if !again => actions.push(drain(*number, state)),
                State::Draining if !again => {}
                _ => {
                    *state = State::Abandoned;
                    actions.push(Action::Kill(*number));
                }
            }
        }
        actions.extend(self.exit_when_empty());
        actions
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// What is still wrong: a crash that nothing has taken the place of, else why the last new generation was given up.
    pub fn last_error(&self) -> Option<&str> {
        self.crash.as_deref().or(self.given_up.as_deref())
    }

    /// How a generation is; `None` where it is gone or as good as gone.
    pub fn state(&self, number: u64) -> Option<GenerationState> {
        match self.generations.get(&number)? {
            State::Starting(_) => Some(GenerationState::Starting),
            State::Serving { .. } => Some(GenerationState::Serving),
            State::Draining => Some(GenerationState::Draining),
            State::Abandoned => None,
        }
    }

    /// Whether some generation serves, or is about to take its first connection.
    pub fn is_serving(&self) -> bool {
        self.generations.values().any(|state| matches!(state, State::Serving { .. }))
    }

    /// Whether a generation is being started because there is no other.
    fn is_replacing(&self) -> bool {
        let starting = |state: &State| matches!(state, State::Starting(Role::First | Role::Replacement));
        self.generations.values().any(starting)
    }

    fn begin(&mut self, role: Role) -> Action {
        self.last += 1;
        self.generations.insert(self.last, State::Starting(role));
        Action::Start(self.last, role)
    }

    fn abandon(&mut self, role: Role) -> Vec<Action> {
        let starting = self.generations.iter_mut().filter(|(_, state)| **state == State::Starting(role));
        starting
            .map(|(number, state)| {
                *state = State::Abandoned;
                Action::Kill(*number)
            })
            .collect()
    }

    fn crashed(&mut self, ended: &Ended) -> Vec<Action> {
        self.crash = Some(ended.reason.clone());
        let delay = match self.crashes {
            0 => Duration::ZERO,
            n => BACKOFF.saturating_mul(1 << (n - 1).min(16)).min(LONGEST_BACKOFF),
        };
        self.crashes = self.crashes.saturating_add(1);
        let mut actions = vec![Action::ReplaceIn(delay)];
        if std::mem::take(&mut self.wanted) {
            actions.extend(self.restart());
        }
        actions
    }

    fn exit_when_empty(&self) -> Vec<Action> {
        match self.generations.is_empty() {
            true => vec![Action::Exit(Exit::Stopped)],
            false => Vec::new(),
        }
    }
}

fn drain(number: u64, state: &mut State) -> Action {
    *state = State::Draining;
    Action::Drain(number)
}

#[cfg(test)]
mod tests;
