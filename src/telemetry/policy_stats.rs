//! Decisions of transport policy by policy and reason. Workers count for themselves and add up here at each tick,
//! so that no lock lies on the way of a request. As many series as there are policies, and some for the absence of
//! one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::names::object::ObjectName;
use crate::snapshot::policies::{Action, Reason};

/// What was decided, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decided {
    /// `None` where it was the absence of a policy.
    pub policy: Option<ObjectName>,
    pub reason: Reason,
}

/// What a policy in dry run would have had to say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriedOut {
    pub policy: ObjectName,
    pub action: Action,
    pub matches: bool,
}

/// Series that are kept apart; policies that come later are counted without their name.
const MOST: usize = 1000;

/// The counts of one worker.
#[derive(Debug, Default)]
pub struct PolicyStats {
    decided: Mutex<BTreeMap<(Option<ObjectName>, &'static str), u64>>,
    tried_out: Mutex<BTreeMap<TriedOut, u64>>,
}

impl PolicyStats {
    pub fn add(&self, decided: impl Iterator<Item = (Decided, u64)>) {
        let mut counts = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        for (Decided { policy, reason }, count) in decided {
            let key = (policy, reason.label());
            let key = if counts.len() < MOST || counts.contains_key(&key) { key } else { (None, key.1) };
            *counts.entry(key).or_default() += count;
        }
    }

    /// Policy, reason and count, in order.
    pub fn read(&self) -> Vec<(Option<ObjectName>, &'static str, u64)> {
        let counts = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((policy, reason), count)| (policy.clone(), *reason, *count)).collect()
    }

    /// Policies beyond the limit are not counted: without its name such a count says nothing.
    pub fn add_tried_out(&self, tried_out: impl Iterator<Item = (TriedOut, u64)>) {
        let mut counts = self.tried_out.lock().unwrap_or_else(PoisonError::into_inner);
        for (tried, count) in tried_out {
            if counts.len() < MOST || counts.contains_key(&tried) {
                *counts.entry(tried).or_default() += count;
            }
        }
    }

    /// What policies in dry run would have said, and how often.
    pub fn read_tried_out(&self) -> BTreeMap<TriedOut, u64> {
        self.tried_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
