//! When something has to be compiled again although no object changed: a certificate becomes valid, a grace
//! time ends. Copies share structure.

use imbl::OrdSet;

use super::report::Subject;
use crate::snapshot::SharedMap;

/// Times, in seconds since the Unix epoch, by subject and in order.
#[derive(Clone, Default)]
pub(super) struct Rechecks {
    in_order: OrdSet<(i64, Subject)>,
    by_subject: SharedMap<Subject, i64>,
}

impl Rechecks {
    /// The earliest time of all.
    pub fn next(&self) -> Option<i64> {
        self.in_order.get_min().map(|(time, _)| *time)
    }

    /// What is due at `now`.
    pub fn due(&self, now: i64) -> impl Iterator<Item = &Subject> {
        self.in_order.iter().take_while(move |(time, _)| *time <= now).map(|(_, subject)| subject)
    }

    /// Replaces the time of `subject`.
    pub fn set(&mut self, subject: Subject, time: Option<i64>) {
        if self.by_subject.get(&subject).copied() == time {
            return;
        }
        if let Some(old) = self.by_subject.remove(&subject) {
            self.in_order.remove(&(old, subject.clone()));
        }
        if let Some(time) = time {
            self.by_subject.insert(subject.clone(), time);
            self.in_order.insert((time, subject));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::HostPattern;

    #[test]
    fn the_earliest_comes_first_and_a_new_time_replaces_the_old() {
        let host = |name: &str| Subject::Certificates(HostPattern::parse(name).unwrap());
        let mut rechecks = Rechecks::default();
        rechecks.set(host("a.test"), Some(20));
        rechecks.set(host("b.test"), Some(10));
        assert_eq!(rechecks.next(), Some(10));
        assert_eq!(rechecks.due(15).collect::<Vec<_>>(), [&host("b.test")]);

        let before = rechecks.clone();
        rechecks.set(host("b.test"), Some(30));
        assert_eq!(rechecks.next(), Some(20));
        rechecks.set(host("a.test"), None);
        assert_eq!(rechecks.next(), Some(30));
        assert_eq!(before.next(), Some(10), "a copy keeps its own times");
        assert_eq!(rechecks.due(5).count(), 0);
    }
}
