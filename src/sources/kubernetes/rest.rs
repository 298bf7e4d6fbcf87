//! Objects that are named and are more than can be watched by name: each is looked at in its turn, and namespaces take
//! turns, so that one that names much keeps nobody waiting but itself.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::references::Reference;
use super::watch::Watch;
use crate::api_server::{ApiError, Backoff};

/// How long a round takes at least, and the pause between two looks at least.
const ROUND: (Duration, Duration) = (Duration::from_secs(30), Duration::from_millis(50));

pub(super) struct Rest {
    /// By namespace, the one whose turn it is first. None is empty.
    waiting: VecDeque<(Arc<str>, VecDeque<Entry>)>,
    /// The one look under way.
    looking: JoinSet<(Entry, Result<(), ApiError>)>,
    looking_at: Option<Reference>,
    /// When the next look is due.
    due: Instant,
    backoff: Backoff,
    /// The last look failed, and others would.
    away: bool,
}

struct Entry {
    reference: Reference,
    watch: Watch,
    /// It was looked at, or that was given up.
    tried: bool,
}

impl Rest {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            looking: JoinSet::new(),
            looking_at: None,
            due: Instant::now(),
            backoff: Backoff::default(),
            away: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.looking_at.is_none()
    }

    /// All that it has.
    pub fn references(&self) -> HashSet<Reference> {
        let waiting = self.waiting.iter().flat_map(|(_, queue)| queue);
        waiting.map(|entry| &entry.reference).chain(&self.looking_at).cloned().collect()
    }

    /// One more, which is looked at soon.
    pub fn add(&mut self, reference: Reference, watch: Watch) {
        self.put(Entry { reference, watch, tried: false }, true);
    }

    /// Drops those that are not wanted; which they were.
    pub async fn retain(&mut self, wanted: impl Fn(&Reference) -> bool) -> Vec<Reference> {
        let mut dropped: Vec<_> =
            self.looking_at.take_if(|reference| !wanted(reference)).into_iter().collect();
        if !dropped.is_empty() {
            self.looking.shutdown().await;
        }
        for (_, queue) in &mut self.waiting {
            queue.retain(|entry| {
                let stays = wanted(&entry.reference);
                if !stays {
                    dropped.push(entry.reference.clone());
                }
                stays
            });
        }
        self.waiting.retain(|(_, queue)| !queue.is_empty());
        dropped
    }

    /// Waits for the next turn, and for what comes of it; for ever where there is none. Nothing is lost where this is
    /// given up half-way.
    pub async fn turn(&mut self) {
        if self.looking.is_empty() {
            if self.waiting.is_empty() {
                pending().await
            }
            if self.hurried().is_none() {
                sleep_until(self.due).await;
            }
            self.begin();
        }
        if let Some(Ok((entry, looked))) = self.looking.join_next().await {
            self.looking_at = None;
            self.end(entry, &looked);
        }
    }

    /// The first namespace with an object of which nothing is known yet.
    fn hurried(&self) -> Option<usize> {
        let unknown = |entry: &Entry| !entry.watch.is_listed() && (!self.away || !entry.tried);
        self.waiting.iter().position(|(_, queue)| queue.front().is_some_and(unknown))
    }

    fn begin(&mut self) {
        let first = self.hurried().unwrap_or_default();
        let Some((namespace, mut queue)) = self.waiting.remove(first) else { return };
        let Some(mut entry) = queue.pop_front() else { return };
        if !queue.is_empty() {
            self.waiting.push_back((namespace, queue));
        }
        self.looking_at = Some(entry.reference.clone());
        let only_kept = self.away && !entry.tried;
        self.looking.spawn_local(async move {
            let looked = match only_kept {
                true => entry.watch.look_at_kept().await,
                false => entry.watch.look().await,
            };
            (entry, looked)
        });
    }

    fn end(&mut self, mut entry: Entry, looked: &Result<(), ApiError>) {
        let others = self.waiting.iter().map(|(_, queue)| queue.len()).sum::<usize>();
        let share = ROUND.0 / u32::try_from(others + 1).unwrap_or(u32::MAX);
        let pause = match looked {
            // What is wrong with one namespace says nothing about others.
            Ok(()) | Err(ApiError::Refused { code: 403, .. }) => {
                self.away = false;
                self.backoff.reset();
                share.max(ROUND.1)
            }
            Err(error) => {
                self.away = true;
                self.backoff.next(error).max(ROUND.1)
            }
        };
        self.due = Instant::now() + pause;
        entry.tried = true;
        self.put(entry, false);
    }

    /// Adds it to those of its namespace: as the next, or as the last.
    fn put(&mut self, entry: Entry, next: bool) {
        let namespace = entry.reference.1.namespace.clone();
        match self.waiting.iter_mut().find(|(known, _)| *known == namespace) {
            Some((_, queue)) if next => queue.push_front(entry),
            Some((_, queue)) => queue.push_back(entry),
            None => self.waiting.push_back((namespace, VecDeque::from([entry]))),
        }
    }
}
