//! PeerAuthentication: which of them counts for a workload, and what it comes to.
//!
//! The levels are mesh, namespace and workload; of several objects on one level the oldest counts, and a level
//! that leaves the mode unset has the one above decide. Each result is expressed as a DENY of plaintext, never
//! as an ALLOW, which would open what another policy closes. DISABLE accepts mTLS too, as PERMISSIVE does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Mesh, selects};
use crate::diagnostics::{Diagnostic, ObjectRef, Severity};
use crate::snapshot::policies::{
    Action, Authorization, CONVERTED_PREFIX, Condition, Group, Match, Rule, STATIC_STRICT, Scope,
    StringMatch, Values,
};
use crate::store::objects::{Kind, MtlsMode, ObjectName, PeerAuthentication};

/// The PeerAuthentications that count, by level.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    static_strict: ObjectName,
    /// There is a PeerAuthentication, whether it counts or not.
    any: bool,
    mesh: Option<PeerAuthentication>,
    namespaces: BTreeMap<Arc<str>, PeerAuthentication>,
    /// Those with a selector, oldest first.
    selecting: BTreeMap<Arc<str>, Vec<PeerAuthentication>>,
}

impl Levels {
    /// Sorts objects into levels, and tells of those that never count.
    pub fn new(mesh: &Mesh, peer_authentications: &[PeerAuthentication]) -> (Self, Vec<Diagnostic>) {
        let mut levels = Self {
            static_strict: ObjectName::new(mesh.root_namespace.as_str(), STATIC_STRICT),
            any: !peer_authentications.is_empty(),
            mesh: None,
            namespaces: BTreeMap::new(),
            selecting: BTreeMap::new(),
        };
        let mut by_age: Vec<_> = peer_authentications.iter().collect();
        by_age.sort_by_key(|pa| pa.metadata.age_order());
        let ignored = by_age.into_iter().filter_map(|pa| levels.add(mesh, pa)).collect();
        (levels, ignored)
    }

    /// Takes in the next younger object.
    fn add(&mut self, mesh: &Mesh, pa: &PeerAuthentication) -> Option<Diagnostic> {
        let namespace = &pa.metadata.name.namespace;
        let counts = match (**namespace == *mesh.root_namespace, pa.selector.is_empty()) {
            (true, true) => self.mesh.get_or_insert_with(|| pa.clone()),
            (false, true) => self.namespaces.entry(namespace.clone()).or_insert_with(|| pa.clone()),
            (false, false) => {
                self.selecting.entry(namespace.clone()).or_default().push(pa.clone());
                return None;
            }
            (true, false) => {
                let message = "a selector in the root namespace selects nothing; the object is ignored";
                return Some(ignored(pa, "spec.selector", "SelectorIgnored", message.into()));
            }
        };
        let counting = &counts.metadata.name;
        (*counting != pa.metadata.name).then(|| {
            let message =
                format!("{counting} is older and counts for the same workloads; the object is ignored");
            ignored(pa, "", "Outranked", message)
        })
    }

    /// What counts for a workload.
    pub fn transport(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Transport<'_> {
        let own = self.selecting.get(namespace).into_iter().flatten();
        self.resolve(namespace, own.clone().find(|pa| selects(&pa.selector, labels)))
    }

    /// Namespaces with a PeerAuthentication that counts for all of them.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.keys()
    }

    /// Every policy that some workload may list.
    pub fn authorizations(&self) -> impl Iterator<Item = Authorization> {
        let strict = self.any.then(|| deny(self.static_strict.clone(), [group([plaintext()])].into()));
        let converted = self
            .selecting
            .iter()
            .flat_map(|(namespace, all)| all.iter().map(move |pa| (namespace, pa)))
            .filter_map(|(namespace, pa)| self.resolve(namespace, Some(pa)).converted());
        strict.into_iter().chain(converted)
    }

    fn resolve<'a>(&'a self, namespace: &str, selected: Option<&'a PeerAuthentication>) -> Transport<'a> {
        let set = |pa: &&PeerAuthentication| pa.mode != MtlsMode::Unset;
        let parent = self.namespaces.get(namespace).filter(set).or(self.mesh.as_ref().filter(set));
        let base = selected.filter(set).or(parent);
        Transport { static_strict: &self.static_strict, selected, parent, base }
    }
}

/// The effective result for a workload: does it accept plaintext, on which ports not, and who says so.
#[derive(Clone, Copy, Debug)]
pub struct Transport<'a> {
    static_strict: &'a ObjectName,
    /// The object that selects the workload by label.
    selected: Option<&'a PeerAuthentication>,
    /// The object of the namespace or mesh that would decide without it.
    parent: Option<&'a PeerAuthentication>,
    /// The object whose mode counts where no port has its own; `None` is PERMISSIVE.
    pub base: Option<&'a PeerAuthentication>,
}

impl Transport<'_> {
    /// Whether ports without a mode of their own refuse plaintext.
    pub fn strict(&self) -> bool {
        self.base.is_some_and(is_strict)
    }

    /// The ports that have a mode of their own, ascending, with the object that says so.
    pub fn ports(&self) -> impl Iterator<Item = (&PeerAuthentication, u16, MtlsMode)> {
        let ports = self
            .selected
            .into_iter()
            .flat_map(|pa| pa.ports.iter().map(move |(port, mode)| (pa, *port, *mode)));
        ports.filter(|(_, _, mode)| *mode != MtlsMode::Unset)
    }

    /// The ports that differ from the others.
    fn exceptions(&self) -> impl Iterator<Item = u16> {
        let strict = self.strict();
        self.ports()
            .filter(move |(_, _, mode)| (*mode == MtlsMode::Strict) != strict)
            .map(|(_, port, _)| port)
    }

    /// The key that the workload lists: its own policy where a port differs, the static one where all are
    /// strict, none where all are open.
    pub(super) fn key(&self) -> Option<ObjectName> {
        match self.exceptions().next() {
            Some(_) => self.converted_name(),
            None => self.strict().then(|| self.static_strict.clone()),
        }
    }

    fn converted_name(&self) -> Option<ObjectName> {
        let name = &self.selected?.metadata.name;
        Some(ObjectName::new(name.namespace.clone(), format!("{CONVERTED_PREFIX}{}", name.name)))
    }

    /// The policy that stands for the selected object, where a port differs. Groups and rules are in the order
    /// that istiod has them in, so that documents are the same byte for byte.
    fn converted(&self) -> Option<Authorization> {
        let exceptions: Vec<u16> = self.exceptions().collect();
        if exceptions.is_empty() {
            return None;
        }
        let groups = match self.strict() {
            false => exceptions.into_iter().map(|port| group([plaintext_to(port)])).collect(),
            true => [self.strict_except(&exceptions)].into(),
        };
        Some(deny(self.converted_name()?, groups))
    }

    /// "No identity, and none of these ports", in one group: groups are ORed. The demand for an identity stands
    /// before the ports where the selected object makes it, after them where the level above does, and in both
    /// places where both do.
    fn strict_except(&self, exempt: &[u16]) -> Group {
        let own = self.selected.is_some_and(is_strict).then(plaintext);
        let inherited = self.parent.is_some_and(is_strict).then(plaintext);
        group(own.into_iter().chain(exempt.iter().map(|port| other_than(*port))).chain(inherited))
    }
}

fn ignored(pa: &PeerAuthentication, field: &str, reason: &'static str, message: String) -> Diagnostic {
    let object = ObjectRef::new(Kind::PeerAuthentication, &pa.metadata.name);
    Diagnostic::new(Severity::Warning, object, field, reason, message)
}

fn is_strict(pa: &PeerAuthentication) -> bool {
    pa.mode == MtlsMode::Strict
}

fn deny(name: ObjectName, groups: Box<[Group]>) -> Authorization {
    Authorization { name, scope: Scope::WorkloadSelector, action: Action::Deny, groups, dry_run: false }
}

fn group(rules: impl IntoIterator<Item = Rule>) -> Group {
    Group { rules: rules.into_iter().collect() }
}

fn plaintext() -> Rule {
    rule([no_identity()])
}

fn plaintext_to(port: u16) -> Rule {
    rule([no_identity(), Condition { negated: false, values: Values::DestinationPorts([port].into()) }])
}

fn other_than(port: u16) -> Rule {
    rule([Condition { negated: true, values: Values::DestinationPorts([port].into()) }])
}

fn no_identity() -> Condition {
    Condition { negated: true, values: Values::Principals([StringMatch::Presence].into()) }
}

fn rule<const N: usize>(conditions: [Condition; N]) -> Rule {
    Rule { matches: [Match { conditions: conditions.into() }].into() }
}
