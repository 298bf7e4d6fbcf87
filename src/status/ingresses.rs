//! `status.loadBalancer` of the Ingresses that are served: server-side apply with a field manager of our own,
//! and only where something else is written there.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use imbl::OrdMap;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::MANAGER;
use super::rights::{Missing, general, pause};
use crate::diagnostics::Diagnostic;
use crate::sources::{Address, IngressStatus};
use crate::store::objects::ObjectName;

/// Requests under way at once.
const CONCURRENT: usize = 8;
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);
/// After this long without seeing what was written, it is written again.
const RETRY: Duration = Duration::from_secs(30);
/// After this long without another attempt, what came of the last one counts no more.
const FORGET: Duration = Duration::from_secs(600);
/// So many attempts one after the other mean that somebody else writes there.
const CONTESTED: u32 = 4;

/// What was written, and what came of it.
#[derive(Default)]
pub(super) struct Writer {
    attempts: HashMap<ObjectName, Attempt>,
    missing: Missing,
}

struct Attempt {
    /// What the watch had shown before.
    before: Arc<IngressStatus>,
    addresses: Vec<Address>,
    outcome: Outcome,
    at: Instant,
    /// How many there have been, one after the other.
    count: u32,
}

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Written,
    /// There is no right to it.
    Forbidden(String),
    Refused(String),
    Failed,
}

impl Writer {
    /// Writes `addresses` to each Ingress in `served` that has others, for as long as `leader` holds.
    pub async fn write(
        &mut self,
        client: &Client,
        served: &OrdMap<ObjectName, Arc<IngressStatus>>,
        addresses: &[Address],
        leader: &watch::Receiver<bool>,
    ) {
        let differs = |status: &IngressStatus| !addresses.is_empty() && status.addresses != addresses;
        self.attempts.retain(|name, attempt| {
            served.get(name).is_some_and(|status| attempt.outcome == Outcome::Written || differs(status))
        });
        if !self.missing.is_empty() {
            let open = served.iter().filter(|(_, status)| differs(status));
            self.missing.only(&open.map(|(name, _)| name.namespace.clone()).collect::<BTreeSet<_>>());
        }
        if addresses.is_empty() {
            return;
        }
        let now = Instant::now();
        let due = served.iter().filter(|(name, status)| self.is_due(name, status, addresses, now));
        let due: Vec<_> = due.collect();
        // Who has no right to one has none to the next; another namespace has its turn with the next pass.
        let given_up = Cell::new(false);
        let given_up = &given_up;
        let writes = futures_util::stream::iter(due).map(|(name, status)| async move {
            if given_up.get() || !*leader.borrow() {
                return None;
            }
            let outcome = apply(client, name, addresses).await;
            given_up.set(given_up.get() || matches!(outcome, Outcome::Forbidden(_)));
            Some((name, status, outcome))
        });
        let outcomes: Vec<_> = writes.buffer_unordered(CONCURRENT).collect().await;
        let now = Instant::now();
        for (name, status, outcome) in outcomes.into_iter().flatten() {
            self.note(name, status, addresses, outcome, now);
        }
    }

    /// Whether an Ingress with this status is to be written to.
    fn is_due(
        &self,
        name: &ObjectName,
        status: &Arc<IngressStatus>,
        addresses: &[Address],
        now: Instant,
    ) -> bool {
        if status.addresses == addresses {
            return false;
        }
        if self.missing.holds(&name.namespace, now) {
            return false;
        }
        let Some(last) = self.attempts.get(name) else { return true };
        let wait = match last.outcome {
            // The watch has not yet said what came of it.
            Outcome::Written if Arc::ptr_eq(&last.before, status) => RETRY.max(pause(last.count)),
            _ => pause(last.count),
        };
        let another = last.outcome == Outcome::Written && last.addresses != addresses;
        another || now >= last.at + wait
    }

    fn note(
        &mut self,
        name: &ObjectName,
        before: &Arc<IngressStatus>,
        addresses: &[Address],
        outcome: Outcome,
        now: Instant,
    ) {
        if let Outcome::Forbidden(message) = outcome {
            self.missing.refused(&name.namespace, message, now);
            return;
        }
        self.missing.given(&name.namespace);
        let last = self.attempts.get(name).filter(|last| now < last.at + FORGET);
        let again = last.filter(|last| last.outcome != Outcome::Written || last.addresses == addresses);
        let count = again.map_or(1, |last| last.count.saturating_add(1));
        let (before, addresses) = (before.clone(), addresses.to_vec());
        self.attempts.insert(name.clone(), Attempt { before, addresses, outcome, at: now, count });
    }

    /// What keeps the status from being as it should be: one finding for each reason.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let missing = self.missing.finding("StatusForbidden", "the status of Ingresses");
        let mut findings: Vec<_> = missing.into_iter().collect();
        let mut attempts: Vec<_> = self.attempts.iter().collect();
        attempts.sort_by_key(|(name, _)| *name);
        let first = |is: &dyn Fn(&Attempt) -> bool| attempts.iter().find(|(_, attempt)| is(attempt)).copied();
        let contested = first(&|attempt| {
            attempt.outcome == Outcome::Written && attempt.count >= CONTESTED && attempt.at.elapsed() < FORGET
        });
        if let Some((name, _)) = contested {
            let message = format!(
                "Another controller writes the status of Ingresses that are served here, such as {name}: ours is written \
                 ever less often."
            );
            findings.push(general("StatusContested", message));
        }
        let refused = first(&|attempt| matches!(attempt.outcome, Outcome::Refused(_)));
        if let Some((name, Attempt { outcome: Outcome::Refused(message), .. })) = refused {
            let message = format!("The API server refuses the status of Ingress {name}: {message}.");
            findings.push(general("StatusRefused", message));
        }
        findings
    }
}

/// Takes our addresses out of the status of every Ingress that has any.
pub(super) async fn clear(client: &Client, served: &OrdMap<ObjectName, Arc<IngressStatus>>) {
    let filled = served.iter().filter(|(_, status)| !status.addresses.is_empty());
    let writes = futures_util::stream::iter(filled).map(|(name, _)| apply(client, name, &[]));
    let cleared: Vec<_> = writes.buffer_unordered(CONCURRENT).collect().await;
    let cleared = cleared.iter().filter(|outcome| **outcome == Outcome::Written).count();
    tracing::info!(ingresses = cleared, "status cleared");
}

async fn apply(client: &Client, name: &ObjectName, addresses: &[Address]) -> Outcome {
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), &name.namespace);
    let params = PatchParams::apply(MANAGER).force();
    let patch = Patch::Apply(status(name, addresses));
    match timeout(REQUEST, ingresses.patch_status(&name.name, &params, &patch)).await {
        Ok(Ok(_)) => Outcome::Written,
        // Deleted in the meantime.
        Ok(Err(Error::Api(status))) if status.code == 404 => Outcome::Written,
        Ok(Err(Error::Api(status))) if matches!(status.code, 403 | 409 | 422) => {
            tracing::warn!(ingress = %name, message = status.message, "status refused");
            match status.code {
                403 => Outcome::Forbidden(status.message),
                _ => Outcome::Refused(status.message),
            }
        }
        Ok(Err(error)) => {
            tracing::warn!(ingress = %name, %error, "status not written");
            Outcome::Failed
        }
        Err(_) => {
            tracing::warn!(ingress = %name, "status not written: the API server did not answer in time");
            Outcome::Failed
        }
    }
}

fn status(name: &ObjectName, addresses: &[Address]) -> Value {
    let ingress: Vec<_> = addresses
        .iter()
        .map(|address| match address {
            Address::Ip(ip) => json!({ "ip": ip }),
            Address::Hostname(name) => json!({ "hostname": name }),
        })
        .collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "namespace": *name.namespace, "name": *name.name },
        "status": { "loadBalancer": { "ingress": ingress } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, addresses: &[Address]) -> (ObjectName, Arc<IngressStatus>) {
        let ingress = ObjectName::new("shop", name);
        (ingress.clone(), Arc::new(IngressStatus { ingress, uid: "u".into(), addresses: addresses.to_vec() }))
    }

    fn ip(address: &str) -> Vec<Address> {
        vec![Address::Ip(address.into())]
    }

    /// Refuses every request on a local port, and counts them.
    async fn refusing(count: std::rc::Rc<Cell<usize>>) -> Client {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        crate::tls::install_provider();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::task::spawn_local(async move {
            let body =
                json!({ "kind": "Status", "status": "Failure", "code": 403, "message": "no" }).to_string();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                count.set(count.get() + 1);
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let length = body.len();
                let head =
                    format!("HTTP/1.1 403 No\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                let _ = stream.write_all((head + &body).as_bytes()).await;
            }
        });
        Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap()
    }

    #[test]
    fn a_pass_ends_with_the_first_write_that_there_is_no_right_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let count = std::rc::Rc::new(Cell::new(0));
            let client = refusing(count.clone()).await;
            let served: OrdMap<_, _> = (0..300).map(|at| seen(&format!("i{at}"), &[])).collect();
            let (_leads, leader) = watch::channel(true);
            let mut writer = Writer::default();
            writer.write(&client, &served, &ip("203.0.113.7"), &leader).await;
            assert!((1..=2 * CONCURRENT).contains(&count.get()), "{} writes", count.get());
            assert_eq!(writer.findings()[0].reason, "StatusForbidden");
        });
    }

    #[test]
    fn who_is_overwritten_writes_ever_less_often_and_says_so() {
        let (ours, theirs) = (ip("203.0.113.7"), ip("203.0.113.99"));
        let mut writer = Writer::default();
        let mut now = Instant::now();
        let end = now + Duration::from_secs(3600);
        let mut writes = 0;
        while now < end {
            let (name, status) = seen("web", &theirs);
            if writer.is_due(&name, &status, &ours, now) {
                writer.note(&name, &status, &ours, Outcome::Written, now);
                writes += 1;
            }
            now += Duration::from_millis(500);
        }
        assert!((12..30).contains(&writes), "{writes} writes in an hour");
        assert_eq!(writer.findings()[0].reason, "StatusContested");
        let (name, status) = seen("web", &theirs);
        assert!(writer.is_due(&name, &status, &ip("203.0.113.8"), now), "another address is written at once");
    }

    #[test]
    fn what_was_written_and_not_seen_yet_is_not_written_again_at_once() {
        let (name, status) = seen("web", &[]);
        let mut writer = Writer::default();
        let now = Instant::now();
        assert!(writer.is_due(&name, &status, &ip("203.0.113.7"), now));
        writer.note(&name, &status, &ip("203.0.113.7"), Outcome::Written, now);
        assert!(!writer.is_due(&name, &status, &ip("203.0.113.7"), now + pause(1)));
        assert!(writer.is_due(&name, &status, &ip("203.0.113.7"), now + RETRY));
        assert!(writer.findings().is_empty());
    }

    #[test]
    fn a_right_that_is_missing_holds_for_the_whole_namespace() {
        let mut writer = Writer::default();
        let start = Instant::now();
        let mut writes = 0;
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            for at in 0..300 {
                let (name, status) = seen(&format!("i{at}"), &[]);
                if writer.is_due(&name, &status, &ip("203.0.113.7"), now) {
                    writer.note(&name, &status, &ip("203.0.113.7"), Outcome::Forbidden("no".into()), now);
                    writes += 1;
                }
            }
        }
        assert!(writes < 30, "{writes} writes in an hour");
        let findings = writer.findings();
        assert_eq!(findings.iter().map(|it| it.reason).collect::<Vec<_>>(), ["StatusForbidden"]);
        let (name, status) = seen("i0", &[]);
        writer.note(&name, &status, &ip("203.0.113.7"), Outcome::Written, start);
        assert!(writer.findings().is_empty(), "once the right is given");
    }
}
