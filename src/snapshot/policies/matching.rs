//! Whether a policy matches a connection. Pure, allocation-free, and the same for every way a connection can
//! arrive: groups are ORed, rules ANDed, matches ORed, conditions ANDed, values ORed, negated values none-of.
//!
//! Following a policy through its groups, rules, matches and values costs a cache miss at each level, and 100
//! policies cost microseconds. So the policies of a workload become one [`Questions`]: a flat list of yes/no
//! questions, each of which knows where to go on; a connection walks down it and skips what cannot match.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use super::{Authorization, Condition, Group, Match, Rule, ServiceAccount, StringMatch, Values};
use crate::tls::spiffe::SpiffeId;

/// What a decision is made on. Addresses may be IPv4-mapped; they count as IPv4.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// From the client certificate verified on this very connection, else `None`.
    pub principal: Option<&'a SpiffeId>,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The application's port, never that of a tunnel.
    pub port: u16,
}

/// Policies as questions to be asked from the first one on.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions {
    policies: Vec<Arc<Authorization>>,
    /// Last question first: they are laid down from the end, where it's known already where to go on.
    questions: Vec<Question>,
    first: Next,
}

#[derive(Clone, Debug)]
struct Question {
    ask: Ask,
    yes: Next,
    no: Next,
}

/// Where to go on.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    Question(u32),
    /// The policy matches.
    Policy(u32),
    /// No policy matches.
    #[default]
    Nothing,
}

/// One value of one attribute.
#[derive(Clone, Debug)]
enum Ask {
    SourceIp(IpNet),
    DestinationIp(IpNet),
    DestinationPort(u16),
    Namespace(StringMatch),
    Principal(StringMatch),
    TrustDomain(StringMatch),
    ServiceAccount(Box<ServiceAccount>),
}

impl Questions {
    pub fn new(policies: Vec<Arc<Authorization>>) -> Self {
        let mut questions = Self::default();
        let mut next = Next::Nothing;
        for (at, policy) in policies.iter().enumerate().rev() {
            let found = Next::Policy(u32::try_from(at).unwrap_or(u32::MAX));
            next = questions.any(&policy.groups, found, next, Self::group);
        }
        Self { first: next, policies, ..questions }
    }

    /// The first policy that matches.
    pub fn first_match(&self, facts: &Facts<'_>) -> Option<&Authorization> {
        let mut next = self.first;
        while let Next::Question(at) = next {
            let question = self.questions.get(at as usize)?;
            next = if question.ask.holds(facts) { question.yes } else { question.no };
        }
        match next {
            Next::Policy(at) => self.policies.get(at as usize).map(|policy| &**policy),
            Next::Question(_) | Next::Nothing => None,
        }
    }

    pub fn policies(&self) -> &[Arc<Authorization>] {
        &self.policies
    }

    /// Lays down that any part leads to `yes`, and none of them to `no`; hands back where that begins.
    fn any<T>(
        &mut self,
        parts: &[T],
        yes: Next,
        no: Next,
        part: fn(&mut Self, &T, Next, Next) -> Next,
    ) -> Next {
        parts.iter().rev().fold(no, |no, one| part(self, one, yes, no))
    }

    /// As `any`, for all parts.
    fn all<T>(
        &mut self,
        parts: &[T],
        yes: Next,
        no: Next,
        part: fn(&mut Self, &T, Next, Next) -> Next,
    ) -> Next {
        parts.iter().rev().fold(yes, |yes, one| part(self, one, yes, no))
    }

    fn group(&mut self, group: &Group, yes: Next, no: Next) -> Next {
        let mut rules: Vec<&Rule> = group.rules.iter().collect();
        rules.sort_by_key(|rule| rule.matches.iter().flat_map(|one| &one.conditions).map(turn).max());
        self.all(&rules, yes, no, Self::rule)
    }

    fn rule(&mut self, rule: &&Rule, yes: Next, no: Next) -> Next {
        match rule.matches.is_empty() {
            true => yes,
            false => self.any(&rule.matches, yes, no, Self::match_),
        }
    }

    fn match_(&mut self, one: &Match, yes: Next, no: Next) -> Next {
        match one.conditions.is_empty() {
            true => no,
            false => {
                let mut conditions: Vec<&Condition> = one.conditions.iter().collect();
                conditions.sort_by_key(|condition| turn(condition));
                self.all(&conditions, yes, no, Self::condition)
            }
        }
    }

    fn condition(&mut self, condition: &&Condition, yes: Next, no: Next) -> Next {
        let (yes, no) = if condition.negated { (no, yes) } else { (yes, no) };
        match &condition.values {
            Values::SourceIps(networks) => self.values(networks, yes, no, Ask::SourceIp),
            Values::DestinationIps(networks) => self.values(networks, yes, no, Ask::DestinationIp),
            Values::DestinationPorts(ports) => self.values(ports, yes, no, Ask::DestinationPort),
            Values::Namespaces(texts) => self.values(texts, yes, no, Ask::Namespace),
            Values::Principals(texts) => self.values(texts, yes, no, Ask::Principal),
            Values::TrustDomains(texts) => self.values(texts, yes, no, Ask::TrustDomain),
            Values::ServiceAccounts(accounts) => {
                self.values(accounts, yes, no, |account| Ask::ServiceAccount(Box::new(account)))
            }
        }
    }

    fn values<T: Clone>(&mut self, values: &[T], yes: Next, no: Next, ask: fn(T) -> Ask) -> Next {
        values.iter().rev().fold(no, |no, value| self.question(Question { ask: ask(value.clone()), yes, no }))
    }

    fn question(&mut self, question: Question) -> Next {
        self.questions.push(question);
        Next::Question(u32::try_from(self.questions.len() - 1).unwrap_or(u32::MAX))
    }
}

/// The order in which to ask what must hold together. Who the peer is tells the most policies apart, the port
/// the fewest.
fn turn(condition: &Condition) -> u8 {
    match condition.values {
        Values::Principals(_)
        | Values::ServiceAccounts(_)
        | Values::Namespaces(_)
        | Values::TrustDomains(_) => 0,
        Values::SourceIps(_) => 1,
        Values::DestinationIps(_) => 2,
        Values::DestinationPorts(_) => 3,
    }
}

/// A connection taken apart once, before the questions.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    peer: Option<Peer<'a>>,
}

#[derive(Clone, Copy)]
struct Peer<'a> {
    principal: &'a str,
    trust_domain: &'a str,
    namespace: &'a str,
    service_account: &'a str,
}

impl<'a> From<&Connection<'a>> for Facts<'a> {
    fn from(connection: &Connection<'a>) -> Self {
        Self {
            source: connection.source.to_canonical(),
            destination: connection.destination.to_canonical(),
            port: connection.port,
            peer: connection.principal.map(|id| Peer {
                principal: id.principal(),
                trust_domain: id.trust_domain(),
                namespace: id.namespace(),
                service_account: id.service_account(),
            }),
        }
    }
}

impl Ask {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        match self {
            Self::SourceIp(network) => network.contains(&facts.source),
            Self::DestinationIp(network) => network.contains(&facts.destination),
            Self::DestinationPort(port) => *port == facts.port,
            Self::Namespace(text) => text.matches(facts.peer.map_or("", |peer| peer.namespace)),
            Self::Principal(text) => facts.peer.is_some_and(|peer| text.matches(peer.principal)),
            Self::TrustDomain(text) => facts.peer.is_some_and(|peer| text.matches(peer.trust_domain)),
            Self::ServiceAccount(account) => facts.peer.is_some_and(|peer| {
                *account.name == *peer.service_account && *account.namespace == *peer.namespace
            }),
        }
    }
}

impl StringMatch {
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(value) => **value == *text,
            Self::Prefix(value) => text.starts_with(&**value),
            Self::Suffix(value) => text.ends_with(&**value),
            Self::Presence => !text.is_empty(),
        }
    }
}
