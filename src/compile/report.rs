//! What a compile has to say, by the part that it is about. Parts that didn't change keep their findings, and
//! a copy shares them: a report of 100,000 hosts is as cheap to carry on as a report of one.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::names::HostPattern;
use crate::snapshot::clusters::ClusterKey;

/// A part of a snapshot whose findings are replaced together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Settings,
    DefaultCertificate,
    /// All policies together: one can outrank another.
    Policies,
    /// The root certificates of the mesh.
    Trust,
    /// The session ticket keys that replicas share.
    TicketKeys,
    /// Routes of a host.
    Host(HostPattern),
    /// Certificates of a host.
    Certificates(HostPattern),
    Cluster(ClusterKey),
    /// The staple of the leaf with this fingerprint.
    Staple([u8; 32]),
    Object(ObjectRef),
}

/// All findings of a compile.
#[derive(Clone, Debug, Default)]
pub struct Report {
    by_subject: OrdMap<Subject, Arc<[Diagnostic]>>,
}

/// Findings that one subject may have; the rest is counted. Keeps one hostile object from filling the memory.
const MOST_PER_SUBJECT: usize = 100;

impl Report {
    /// Every finding once: by object and field, the worst first.
    pub fn all(&self) -> impl Iterator<Item = &Diagnostic> {
        let mut all: Vec<&Diagnostic> = self.by_subject.values().flat_map(|found| found.iter()).collect();
        all.sort_by(|a, b| display_order(a).cmp(&display_order(b)));
        all.dedup();
        all.into_iter()
    }

    /// The findings about one subject.
    pub fn about(&self, subject: &Subject) -> &[Diagnostic] {
        self.by_subject.get(subject).map_or(&[], |found| found)
    }

    /// Findings that `before` did not have. Costs what differs between the two.
    pub fn news_since<'a>(&'a self, before: &'a Self) -> Vec<&'a Diagnostic> {
        let mut news = Vec::new();
        for difference in before.by_subject.diff(&self.by_subject) {
            match difference {
                DiffItem::Add(_, found) => news.extend(found.iter()),
                DiffItem::Update { old: (_, old), new: (_, new) } => {
                    news.extend(new.iter().filter(|finding| !old.contains(finding)));
                }
                DiffItem::Remove(..) => {}
            }
        }
        news
    }

    /// Whether this is a copy of `other` that has not changed since.
    pub fn is_same(&self, other: &Self) -> bool {
        self.by_subject.ptr_eq(&other.by_subject)
    }

    pub fn is_empty(&self) -> bool {
        self.by_subject.is_empty()
    }

    /// Replaces the findings about `subject`.
    pub(super) fn set(&mut self, subject: Subject, mut found: Vec<Diagnostic>) {
        if found.is_empty() {
            // A map that loses nothing would be taken apart all the same.
            if self.by_subject.contains_key(&subject) {
                self.by_subject.remove(&subject);
            }
            return;
        }
        found.sort_by(|a, b| display_order(a).cmp(&display_order(b)));
        if let Some(more) = found.len().checked_sub(MOST_PER_SUBJECT).filter(|more| *more > 0) {
            found.truncate(MOST_PER_SUBJECT);
            if let Some(object) = found.first().and_then(|first| first.object.clone()) {
                let message = format!("There are {more} more findings like these.");
                found.push(Diagnostic::new(Severity::Info, object, "", "MoreFindings", message));
            }
        }
        if self.about(&subject) != found {
            self.by_subject.insert(subject, found.into());
        }
    }

    pub(super) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.by_subject.keys()
    }
}

type DisplayOrder<'a> = (&'a Option<ObjectRef>, &'a str, Reverse<Severity>, &'static str, &'a str);

fn display_order(diagnostic: &Diagnostic) -> DisplayOrder<'_> {
    let Diagnostic { severity, file: _, object, field, reason, message } = diagnostic;
    (object, field, Reverse(*severity), reason, message)
}
