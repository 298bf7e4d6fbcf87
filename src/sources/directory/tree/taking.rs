//! What the files of a unit define is taken over, kept as it was, or withdrawn.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use ahash::AHashSet;

use super::super::content::{self, Content, file_error};
use super::super::read::{ReadError, Stamps};
use super::{Loaded, ObjectId, Place, Tree, object_ref};
use crate::diagnostics::Diagnostic;
use crate::store::Event;
use crate::store::objects::Unknown;

impl Tree {
    /// The files of `place` were read well, or as well as they are.
    pub(super) fn take(
        &mut self,
        place: &Arc<Place>,
        content: Content,
        stamps: Stamps,
        digest: u64,
        now: Instant,
    ) {
        let before = self.units.get(place).map(|known| known.objects.clone()).unwrap_or_default();
        if content.empty && !before.is_empty() {
            let message = "the file is empty: its objects stay as they were; delete the file to remove them";
            let finding = file_error("EmptyFile", message.into());
            self.waits.retry(place, false, now);
            return self.keep(place, stamps, vec![finding]);
        }
        let first = self.synced && !self.waits.is_in_trouble(place);
        if content.broken && place.unit.key.is_some() && (first || !before.is_empty()) {
            let first = self.waits.retry(place, false, now);
            return match self.is_between_halves(place, first) {
                true => self.keep_silently(place, stamps),
                false => self.keep(place, stamps, content.findings),
            };
        }
        let defined: Vec<_> = content.objects.iter().map(|defined| (defined.id(), defined.digest)).collect();
        let kept: AHashSet<_> = defined.iter().map(|(id, _)| id).collect();
        // Where a document could not be read, what is missing may be in it.
        let (mut objects, gone): (Vec<_>, Vec<_>) =
            before.into_vec().into_iter().filter(|(id, _)| !kept.contains(id)).partition(|_| content.broken);
        objects.extend(defined);
        for defined in content.objects {
            self.define(place, defined);
        }
        for (id, _) in gone {
            self.withdraw(place, &id);
        }
        self.note_unknown(place, &content.unknown);
        let loaded = Loaded {
            stamps,
            digest: (!content.broken).then_some(digest),
            objects: objects.into(),
            unknown: content.unknown.into(),
            findings: content.findings.into(),
        };
        let said = place.unit.files().any(|file| self.told.contains(file));
        if said || !loaded.findings.is_empty() || !loaded.unknown.is_empty() {
            self.dirty.insert(place.clone());
        }
        self.units.insert(place.clone(), loaded);
        match content.broken {
            true => _ = self.waits.retry(place, false, now),
            false => self.waits.solved(place),
        }
    }

    fn define(&mut self, place: &Arc<Place>, defined: content::Defined) {
        let id = defined.id();
        let before = self.objects.add(&id, place);
        if self.objects.first(&id) != Some(place) {
            self.dirty.insert(place.clone());
            return;
        }
        if before.as_ref() != Some(place) {
            self.origins.push((object_ref(&id), Some(Arc::new(place.unit.path.clone()))));
            if before.is_some() {
                self.another_is_first(&id);
            }
        }
        if self.served.get(&id) != Some(&defined.digest) {
            self.served.insert(id, defined.digest);
            self.events.push(Event::Apply(defined.object));
        }
    }

    fn withdraw(&mut self, place: &Arc<Place>, id: &ObjectId) {
        match self.objects.withdraw(id, place).cloned() {
            Some(other) => {
                self.origins.push((object_ref(id), Some(Arc::new(other.unit.path.clone()))));
                self.another_is_first(id);
                self.again.push(other);
            }
            None => {
                if self.served.remove(id).is_some() {
                    self.origins.push((object_ref(id), None));
                    self.events.push(Event::Delete(id.0, id.1.clone()));
                }
            }
        }
    }

    /// All others that define it are duplicates of this one now, and say so.
    fn another_is_first(&mut self, id: &ObjectId) {
        self.dirty.extend(self.objects.all(id).iter().cloned());
    }

    fn note_unknown(&mut self, place: &Arc<Place>, unknown: &[Unknown]) {
        let before = self.units.get(place).map(|known| known.unknown.clone()).unwrap_or_default();
        for kind in unknown {
            let first = self.unknown.add(kind, place);
            self.dirty.extend(first);
        }
        for kind in before.iter().filter(|kind| !unknown.contains(kind)) {
            let next = self.unknown.withdraw(kind, place).cloned();
            self.dirty.extend(next);
        }
    }

    /// The files of `place` could not be read: what it defined stays. No stamps are kept, so that it is read at the
    /// next opportunity even if the files look as they did now.
    pub(super) fn not_read(&mut self, place: &Arc<Place>, error: &ReadError, now: Instant) {
        self.waits.is_there(place);
        let first = self.waits.retry(place, error.problem.passes(), now);
        match self.is_between_halves(place, first) {
            true => self.keep_silently(place, Stamps::default()),
            false => {
                let finding = content::unread(&place.unit, error, &self.namespace);
                self.keep(place, Stamps::default(), vec![finding]);
            }
        }
    }

    /// The halves of a pair are replaced one after the other: what lies between is not worth a word yet.
    fn is_between_halves(&self, place: &Arc<Place>, first: bool) -> bool {
        first && place.unit.key.is_some() && self.synced
    }

    /// The unit cannot be used now: what it defined stays.
    fn keep(&mut self, place: &Arc<Place>, stamps: Stamps, findings: Vec<Diagnostic>) {
        self.keep_silently(place, stamps);
        if let Some(known) = self.units.get_mut(place) {
            known.findings = findings.into();
            self.dirty.insert(place.clone());
        }
    }

    fn keep_silently(&mut self, place: &Arc<Place>, stamps: Stamps) {
        let known = self.units.entry(place.clone()).or_default();
        known.stamps = stamps;
        known.digest = None;
    }

    pub(super) fn missing(&mut self, place: &Arc<Place>, now: Instant) {
        if !self.units.contains_key(place) {
            self.folders.remove(place);
            return;
        }
        // A root that is gone takes nothing along.
        let roots = self.roots.clone();
        let top = roots.path(place.root);
        if self.folders.why_unreadable(top).is_none() && fs::metadata(top).is_err() {
            self.list_root(place.root, true);
        }
        if self.folders.why_unreadable(top).is_some() {
            return self.waits.out_of_reach(place);
        }
        if self.waits.is_gone(place, now) {
            self.forget(place);
        }
    }

    fn forget(&mut self, place: &Arc<Place>) {
        self.waits.forget(place);
        self.folders.remove(place);
        self.note_unknown(place, &[]);
        if let Some(known) = self.units.remove(place) {
            for (id, _) in &known.objects {
                self.withdraw(place, id);
            }
        }
        self.dirty.insert(place.clone());
    }
}
