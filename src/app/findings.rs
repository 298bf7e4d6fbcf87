//! All findings together, as the admin port and Events are told them. The log has each error and warning once, when it
//! comes up, and a line when it is gone.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::Arc;

use super::source_state::{self, SourceState};
use crate::compile::report::Report;
use crate::diagnostics::{Diagnostic, Severity};
use crate::telemetry::logging::{IN_BULK, MOST_IN_BULK};

/// What was told last, and what it was made of.
#[derive(Default)]
pub(super) struct Findings {
    /// The worst first.
    all: Arc<[Diagnostic]>,
    report: Report,
    sources: u64,
    others: Vec<Diagnostic>,
}

impl Findings {
    pub fn all(&self) -> &Arc<[Diagnostic]> {
        &self.all
    }

    /// Puts them together anew where something of it has changed. `others` are about neither objects nor sources.
    pub fn update(&mut self, report: &Report, sources: &SourceState, others: Vec<Diagnostic>) {
        if self.report.is_same(report) && self.sources == sources.version() && self.others == others {
            return;
        }
        let compiled = report.all().cloned().map(|finding| sources.locate(finding));
        let mut all: Vec<_> = sources.findings().chain(compiled).chain(others.iter().cloned()).collect();
        all.sort_by(worst_first);
        // What is wrong with a pair is found where it is read and where it is used.
        all.dedup();
        let before = std::mem::replace(&mut self.all, all.into());
        (self.report, self.sources, self.others) = (report.clone(), sources.version(), others);
        let (new, gone) = differences(&before, &self.all);
        log_new(&new);
        log_gone(&gone, &new);
    }
}

fn worst_first(a: &Diagnostic, b: &Diagnostic) -> Ordering {
    (Reverse(a.severity), a).cmp(&(Reverse(b.severity), b))
}

/// What only `after` has, and what only `before` has; both are in order.
fn differences<'a>(
    before: &'a [Diagnostic],
    after: &'a [Diagnostic],
) -> (Vec<&'a Diagnostic>, Vec<&'a Diagnostic>) {
    let (mut new, mut gone) = (Vec::new(), Vec::new());
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (Some(old), Some(now)) => worst_first(old, now),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return (new, gone),
        };
        let old = before.next_if(|_| order != Ordering::Greater);
        let now = after.next_if(|_| order != Ordering::Less);
        if order != Ordering::Equal {
            gone.extend(old);
            new.extend(now);
        }
    }
}

/// Logs what is worth a line, and how many more there are.
fn log_new(new: &[&Diagnostic]) {
    let worth_a_line = new.iter().filter(|found| is_worth_a_line(found));
    for found in worth_a_line.clone().take(MOST_IN_BULK) {
        let object = found.object.as_ref().map(tracing::field::display);
        let file = found.file.as_ref().map(|file| file.to_string_lossy());
        let file = file.as_deref();
        let field = Some(found.field.as_str()).filter(|field| !field.is_empty());
        let (reason, message) = (found.reason, in_one_line(&found.message));
        match found.severity {
            Severity::Error => tracing::error!(target: IN_BULK, object, field, file, reason, "{message}"),
            _ => tracing::warn!(target: IN_BULK, object, field, file, reason, "{message}"),
        }
    }
    if let Some(more) = worth_a_line.count().checked_sub(MOST_IN_BULK).filter(|more| *more > 0) {
        tracing::warn!(more, "there are more findings, see /api/v1/diagnostics");
    }
}

/// Logs what is gone, unless something else is said about the same now.
fn log_gone(gone: &[&Diagnostic], new: &[&Diagnostic]) {
    let subject = |found: &Diagnostic| (found.object.clone(), found.field.clone(), found.reason);
    let still: BTreeSet<_> = new.iter().map(|found| subject(found)).collect();
    let gone = gone.iter().filter(|found| is_worth_a_line(found) && !still.contains(&subject(found)));
    for found in gone.take(MOST_IN_BULK) {
        let object = found.object.as_ref().map(tracing::field::display);
        let (reason, message) = (found.reason, in_one_line(&found.message));
        tracing::info!(target: IN_BULK, object, reason, "no longer so: {message}");
    }
}

/// What watches meet they log themselves, with more care: a restart of the API server is no reason to worry.
fn is_worth_a_line(found: &Diagnostic) -> bool {
    found.severity > Severity::Info && !source_state::REASONS_OF_WATCHES.contains(&found.reason)
}

/// Messages quote foreign text with care, but the reason why settings are refused can have several lines.
fn in_one_line(message: &str) -> Cow<'_, str> {
    match message.contains(char::is_control) {
        true => message.replace('\n', "; ").replace(char::is_control, " ").into(),
        false => message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::ObjectRef;
    use crate::store::objects::{Kind, ObjectName};

    fn finding(severity: Severity, name: &str) -> Diagnostic {
        let object = ObjectRef::new(Kind::Secret, &ObjectName::new("default", name));
        Diagnostic::new(severity, object, "", "Broken", "it is broken")
    }

    #[test]
    fn the_worst_comes_first_and_nothing_twice() {
        let [info, warning, error] =
            [Severity::Info, Severity::Warning, Severity::Error].map(|severity| finding(severity, "a"));
        let mut findings = Findings::default();
        let others = vec![info.clone(), warning.clone(), error.clone(), warning.clone()];
        findings.update(&Report::default(), &SourceState::new(0), others);
        assert_eq!(**findings.all(), [error, warning, info]);
    }

    #[test]
    fn what_is_new_and_what_is_gone_is_told_apart() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| finding(Severity::Error, name));
        let warning = finding(Severity::Warning, "a");
        let before = [a.clone(), b.clone(), d.clone()];
        let after = [b.clone(), c.clone(), d.clone(), warning.clone()];
        assert_eq!(differences(&before, &after), (vec![&c, &warning], vec![&a]));
        assert_eq!(differences(&[], &after).0.len(), 4);
        assert_eq!(differences(&before, &before), (vec![], vec![]));
    }

    #[test]
    fn unchanged_findings_are_not_put_together_again() {
        let mut findings = Findings::default();
        let others = || vec![finding(Severity::Error, "a")];
        let (report, sources) = (Report::default(), SourceState::new(0));
        findings.update(&report, &sources, others());
        let before = findings.all().clone();
        findings.update(&report, &sources, others());
        assert!(Arc::ptr_eq(&before, findings.all()));
        findings.update(&report, &sources, Vec::new());
        assert!(findings.all().is_empty());
    }

    #[test]
    fn no_message_makes_two_lines() {
        assert_eq!(in_one_line("a\nb\u{1b}[2J"), "a; b [2J");
        assert_eq!(in_one_line("plain: ä"), "plain: ä");
    }
}
