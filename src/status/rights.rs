//! Rights to write that are missing, by namespace: who has none to one object has none to the next, and whether it has
//! been given meanwhile is found out by trying again, ever less often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::diagnostics::{Diagnostic, Severity};

/// How long to wait after a write that came to nothing: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// How long to wait after so many attempts.
pub(super) fn pause(count: u32) -> Duration {
    let doubled = 2u32.saturating_pow(count.saturating_sub(1).min(16));
    (PAUSE.0 * doubled).min(PAUSE.1)
}

/// The namespaces in which there is no right to write one kind of thing.
#[derive(Default)]
pub(super) struct Missing(BTreeMap<Arc<str>, Refusal>);

struct Refusal {
    message: String,
    at: Instant,
    count: u32,
}

impl Missing {
    /// Whether there is no use in trying now.
    pub fn holds(&self, namespace: &str, now: Instant) -> bool {
        self.0.get(namespace).is_some_and(|it| now < it.at + pause(it.count))
    }

    /// Takes note of a write that was refused. Those of one time, which were under way together, count once.
    pub fn refused(&mut self, namespace: &Arc<str>, message: String, now: Instant) {
        let before = self.0.get(namespace);
        let count = before.map_or(1, |it| it.count.saturating_add(u32::from(it.at != now)));
        self.0.insert(namespace.clone(), Refusal { message, at: now, count });
    }

    /// Takes note of a write that was not refused.
    pub fn given(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    /// Forgets the namespaces in which there is nothing to write any more.
    pub fn only(&mut self, namespaces: &BTreeSet<Arc<str>>) {
        self.0.retain(|namespace, _| namespaces.contains(namespace));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One finding about all of them; `what` there is no right to write.
    pub fn finding(&self, reason: &'static str, what: &str) -> Option<Diagnostic> {
        let (namespace, refusal) = self.0.first_key_value()?;
        let others = match self.0.len() {
            1 => String::new(),
            count => format!(" and {} others", count - 1),
        };
        let message = &refusal.message;
        Some(general(
            reason,
            format!("There is no right to write {what} in namespace {namespace}{others}: {message}."),
        ))
    }
}

/// A finding about what is written, and no object.
pub(super) fn general(reason: &'static str, message: String) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        file: None,
        object: None,
        field: String::new(),
        reason,
        message,
    }
}
