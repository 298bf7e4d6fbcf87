//! From what sources tell to what workers serve: the store takes it in, what it touches is compiled, and the snapshot
//! that comes of it is published. Whoever goes by the result hears of it: the OCSP task, the API server, the next
//! generation.

use std::sync::Arc;

use super::{Control, replaced};
use crate::clock::now;
use crate::compile::compile;
use crate::names::HostPattern;
use crate::settings::Settings;
use crate::sources::Batch;
use crate::store::{Changes, Event};
use crate::supervisor::ledger::Entry;
use crate::supervisor::messages::FromGeneration;

impl Control {
    pub(super) fn apply(&mut self, mut batch: Batch) {
        if self.sources.synced {
            let objects = |event: &&Event| !matches!(event, Event::Staple(_) | Event::StapleGone(_));
            self.changes.dynamic += batch.events.iter().filter(objects).count() as u64;
        }
        self.sources.take(&mut batch, now());
        if let Some(outbox) = &mut self.outbox {
            outbox.observe(&batch.events, batch.ingress_statuses, batch.policy_statuses);
        }
        for event in batch.events {
            self.store.apply(event);
        }
    }

    /// Brings what workers serve up to date. Until every source has listed once, nothing is served at all.
    pub(super) fn compile(&mut self) {
        if self.sources.synced {
            self.compile_changes();
            if !self.handover.ready_sent {
                let staples = self.stapler.restore(self.compiled.wanted_staples());
                staples.into_iter().for_each(|staple| self.store.apply(staple));
                self.compile_changes();
            }
            self.share_ticket_keys();
            if self.shared.load().generation != self.compiled.snapshot.generation {
                self.shared.publish(Arc::new(self.compiled.snapshot.clone()));
            }
            self.note_published();
            self.offer();
        }
        self.publish_view();
    }

    /// Sessions are encrypted with the keys that replicas share, where they do.
    fn share_ticket_keys(&self) {
        if let Some(keys) = &self.compiled.ticket_keys
            && self.tickets.share(keys)
        {
            tracing::info!(keys = keys.len(), "session ticket keys of the Secret are in use");
            self.handover.tell_tickets(&self.tickets);
        }
    }

    /// Notes what the next generation has to count on from.
    pub(super) fn note_published(&self) {
        let snapshot = self.shared.load().generation;
        self.handover.link.note(&Entry { snapshot, changes: self.changes });
    }

    fn compile_changes(&mut self) {
        let (changes, now) = (self.store.take_changes(), now());
        if !self.compiled.is_current(&changes, &self.settings, now) {
            let first = self.compiled.snapshot.generation == 0;
            let next = compile(&self.store, &changes, &self.settings, &self.compiled, now);
            let before = std::mem::replace(&mut self.compiled, next);
            let hosts = std::mem::take(&mut self.compiled.recertified);
            self.keep(&changes, &hosts, &before.snapshot.settings);
            let snapshot = &mut self.compiled.snapshot;
            match first {
                // Numbers go on where the generation before has got to.
                true => snapshot.generation += self.handover.snapshot,
                false => replaced::log(&before.snapshot.certificates, &snapshot.certificates, &hosts),
            }
            self.stapler.follow(&self.compiled.staple_demand);
        }
        if let Some(outbox) = &mut self.outbox {
            outbox.compiled(&self.store, &self.settings, &changes, self.compiled.policies());
        }
    }

    /// Takes note of certificates that only this generation has from now on. Before it serves, the supervisor goes by
    /// the one before.
    fn keep(&mut self, changes: &Changes, recertified: &[HostPattern], before: &Arc<Settings>) {
        let all = changes.all_hosts || !Arc::ptr_eq(before, &self.settings);
        let hosts: Vec<_> = match all {
            true => {
                self.compiled.snapshot.certificates.patterns().chain(self.kept.hosts().cloned()).collect()
            }
            false => changes.hosts.iter().chain(&changes.certificates).chain(recertified).cloned().collect(),
        };
        // The default certificate is looked at in any case.
        self.kept.update(&self.compiled, &self.store, hosts.iter().chain([&HostPattern::Any]));
        if self.handover.serving {
            self.kept.leave(&self.handover.link);
        }
    }

    /// Tells the supervisor, once, that this generation could serve.
    fn offer(&mut self) {
        if !std::mem::replace(&mut self.handover.ready_sent, true) {
            self.handover.tell_settings(&self.settings);
            self.handover.link.tell(&FromGeneration::Ready);
        }
    }

    /// Compiles what is due by the clock, if anything is.
    pub(super) fn recheck(&mut self) {
        if self.compiled.recheck_at().is_some_and(|due| due <= now()) {
            self.compile();
        }
    }
}
