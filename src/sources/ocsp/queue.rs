//! Whose turn it is: certificates waiting for one of the few places to ask from.
//!
//! Places are given to namespaces in turn, and within a namespace to its responders in turn, so that neither a
//! tenant with ten thousand certificates nor a responder that never answers makes the others wait. Cost of a
//! turn does not depend on how many are waiting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::settings::OcspSettings;

/// What distinguishes waiting certificates: the fingerprint and the version of the entry it stands for.
pub type Ticket = ([u8; 32], u64);

/// A place that was given, to be handed back with [`Queue::release`].
#[derive(Clone, Debug)]
pub struct Place {
    pub ticket: Ticket,
    namespace: Arc<str>,
    responder: Arc<str>,
}

/// The certificates that are due, and the places taken.
#[derive(Default)]
pub struct Queue {
    turns: VecDeque<Arc<str>>,
    namespaces: HashMap<Arc<str>, Waiting>,
    busy: usize,
    busy_namespaces: HashMap<Arc<str>, usize>,
    busy_responders: HashMap<Arc<str>, usize>,
}

/// The waiting certificates of one namespace. Neither part is ever empty.
#[derive(Default)]
struct Waiting {
    turns: VecDeque<Arc<str>>,
    tickets: HashMap<Arc<str>, VecDeque<Ticket>>,
}

impl Queue {
    /// Lets `ticket` wait, ahead of its namespace's others at that responder if it is `urgent`.
    pub fn push(&mut self, namespace: &Arc<str>, responder: &Arc<str>, ticket: Ticket, urgent: bool) {
        let waiting = self.namespaces.entry(namespace.clone()).or_insert_with(|| {
            self.turns.push_back(namespace.clone());
            Waiting::default()
        });
        let tickets = waiting.tickets.entry(responder.clone()).or_insert_with(|| {
            waiting.turns.push_back(responder.clone());
            VecDeque::new()
        });
        if urgent {
            tickets.push_front(ticket);
        } else {
            tickets.push_back(ticket);
        }
    }

    /// Gives a place to whoever's turn it is, if one is free.
    pub fn next(&mut self, settings: &OcspSettings) -> Option<Place> {
        if self.busy >= settings.concurrency.max(1) {
            return None;
        }
        for _ in 0..self.turns.len() {
            let namespace = self.turns.pop_front()?;
            let place = self.take(&namespace, settings);
            if self.namespaces.contains_key(&namespace) {
                self.turns.push_back(namespace);
            }
            if let Some(place) = place {
                self.busy += 1;
                *self.busy_namespaces.entry(place.namespace.clone()).or_default() += 1;
                *self.busy_responders.entry(place.responder.clone()).or_default() += 1;
                return Some(place);
            }
        }
        None
    }

    /// Takes a place back.
    pub fn release(&mut self, place: &Place) {
        self.busy = self.busy.saturating_sub(1);
        decrement(&mut self.busy_namespaces, &place.namespace);
        decrement(&mut self.busy_responders, &place.responder);
    }

    fn take(&mut self, namespace: &Arc<str>, settings: &OcspSettings) -> Option<Place> {
        let busy = self.busy_namespaces.get(namespace).copied().unwrap_or(0);
        if busy >= settings.per_namespace().max(1) {
            return None;
        }
        let waiting = self.namespaces.get_mut(namespace)?;
        for _ in 0..waiting.turns.len() {
            let responder = waiting.turns.pop_front()?;
            let busy = self.busy_responders.get(&responder).copied().unwrap_or(0);
            if busy >= OcspSettings::PER_RESPONDER {
                waiting.turns.push_back(responder);
                continue;
            }
            let tickets = waiting.tickets.get_mut(&responder)?;
            let ticket = tickets.pop_front()?;
            if tickets.is_empty() {
                waiting.tickets.remove(&responder);
            } else {
                waiting.turns.push_back(responder.clone());
            }
            if waiting.tickets.is_empty() {
                self.namespaces.remove(namespace);
            }
            return Some(Place { ticket, namespace: namespace.clone(), responder });
        }
        None
    }
}

fn decrement(counts: &mut HashMap<Arc<str>, usize>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        queue: Queue,
        settings: OcspSettings,
    }

    impl Bench {
        fn new() -> Self {
            Self { queue: Queue::default(), settings: OcspSettings::default() }
        }

        fn push(&mut self, namespace: &str, responder: &str, number: u64) {
            self.queue.push(&namespace.into(), &responder.into(), ([0; 32], number), false);
        }

        fn take_all(&mut self) -> Vec<Place> {
            std::iter::from_fn(|| self.queue.next(&self.settings)).collect()
        }
    }

    fn numbers(places: &[Place]) -> Vec<u64> {
        places.iter().map(|place| place.ticket.1).collect()
    }

    #[test]
    fn a_responder_gets_two_places_and_leaves_the_others_alone() {
        let mut bench = Bench::new();
        for number in 0..10 {
            bench.push("a", "slow", number);
        }
        bench.push("b", "quick", 100);
        let places = bench.take_all();
        assert_eq!(numbers(&places), [0, 100, 1]);
        bench.queue.release(&places[0]);
        assert_eq!(numbers(&bench.take_all()), [2]);
    }

    #[test]
    fn a_namespace_gets_half_of_the_places() {
        let mut bench = Bench::new();
        for number in 0..100 {
            bench.push("greedy", &format!("r{number}"), number);
        }
        assert_eq!(bench.take_all().len(), 4);
        for number in 0..100 {
            bench.push(&format!("tenant{number}"), &format!("s{number}"), 1000 + number);
        }
        assert_eq!(numbers(&bench.take_all()), [1000, 1001, 1002, 1003]);
    }

    #[test]
    fn namespaces_take_turns() {
        let mut bench = Bench::new();
        bench.settings.concurrency = 1;
        for number in 0..3 {
            bench.push("a", &format!("r{number}"), number);
            bench.push("b", &format!("r{number}"), 10 + number);
        }
        let mut order = Vec::new();
        while let Some(place) = bench.queue.next(&bench.settings) {
            order.push(place.ticket.1);
            bench.queue.release(&place);
        }
        assert_eq!(order, [0, 10, 1, 11, 2, 12]);
        assert!(bench.queue.namespaces.is_empty() && bench.queue.turns.is_empty());
        assert!(bench.queue.busy_namespaces.is_empty() && bench.queue.busy_responders.is_empty());
    }

    #[test]
    fn the_urgent_go_first() {
        let mut bench = Bench::new();
        bench.push("a", "r", 1);
        bench.queue.push(&"a".into(), &"r".into(), ([0; 32], 2), true);
        assert_eq!(numbers(&bench.take_all()), [2, 1]);
    }
}
