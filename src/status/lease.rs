//! Which replica writes to the API server: the holder of a Lease, as `client-go` does leader election.
//!
//! Clocks of different machines are never compared: a Lease counts as abandoned when we have watched it stay
//! the same for its whole duration. It decides about writes only; traffic doesn't know of it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// After this long without renewal others may take the Lease.
const DURATION: Duration = Duration::from_secs(15);
/// After this long without renewal we no longer believe to hold it: earlier than others do.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause between attempts, to renew and to take.
const RETRY: Duration = Duration::from_secs(2);
/// Time for one request.
const REQUEST: Duration = Duration::from_secs(5);

/// One replica's side of the election.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    identity: String,
    leader: watch::Sender<bool>,
    /// What others wrote last, and when we first saw it.
    seen: Option<(LeaseSpec, Instant)>,
    renewed: Option<Instant>,
    /// When we last knew who holds it, or began to ask.
    known: Instant,
    /// The last error, which is told once.
    told: Option<String>,
    problem: watch::Sender<Option<String>>,
}

impl Election {
    /// Takes part in the election of the Lease `name` in `namespace`, as `identity`, which no other replica
    /// has.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity,
            leader: watch::channel(false).0,
            seen: None,
            renewed: None,
            known: Instant::now(),
            told: None,
            problem: watch::channel(None).0,
        }
    }

    /// Whether this replica leads, now and from now on.
    pub fn leader(&self) -> watch::Receiver<bool> {
        self.leader.subscribe()
    }

    /// Why there has been no word about the Lease for so long that whoever held it leads no more; now and from now on.
    pub fn problem(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    /// Takes part until `stop` says so, then gives the Lease up so that another replica need not wait.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let error = match timeout(REQUEST, self.attempt()).await {
                Ok(Ok(())) => None,
                Ok(Err(Error::Api(status))) => Some(status.message),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the API server did not answer in time".to_owned()),
            };
            self.note(error);
            self.publish();
            tokio::select! {
                () = sleep(RETRY.mul_f64(0.75 + fastrand::f64() / 2.0)) => self.publish(),
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        if self.leader.send_replace(false) {
            let _ = timeout(REQUEST, self.release()).await;
        }
    }

    /// Says what is wrong: at once in the log, and as a problem when it has lasted.
    fn note(&mut self, error: Option<String>) {
        match &error {
            None => self.known = Instant::now(),
            Some(message) if self.told != error => {
                tracing::warn!(
                    lease = self.name,
                    "no word about the lease, without which nothing is written: {message}"
                );
            }
            Some(_) => {}
        }
        let problem = error.clone().filter(|_| self.known.elapsed() >= DEADLINE);
        self.told = error;
        self.problem.send_if_modified(|before| {
            let changed = *before != problem;
            *before = problem;
            changed
        });
    }

    fn publish(&self) {
        let leads = self.renewed.is_some_and(|renewed| renewed.elapsed() < DEADLINE);
        self.leader.send_if_modified(|before| {
            let changed = *before != leads;
            *before = leads;
            changed
        });
    }

    /// Renews the Lease, takes it where it is free, or notes who holds it.
    async fn attempt(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let spec = self.spec(None);
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            match self.leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await {
                Ok(_) => self.renewed = Some(started),
                // Another replica was faster.
                Err(Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error),
            }
            return Ok(());
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder != self.identity && !holder.is_empty() && !self.is_abandoned(&spec) {
            self.renewed = None;
            return Ok(());
        }
        // The version in the metadata makes this fail where another replica was faster.
        let lease = Lease { metadata: lease.metadata, spec: Some(self.spec(Some(&spec))) };
        match self.leases.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(_) => self.renewed = Some(started),
            Err(Error::Api(status)) if status.code == 409 => self.seen = None,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether its holder has let it run out before our eyes.
    fn is_abandoned(&mut self, spec: &LeaseSpec) -> bool {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        match &self.seen {
            Some((seen, since)) if seen == spec => since.elapsed() > duration,
            _ => {
                self.seen = Some((spec.clone(), Instant::now()));
                false
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let ours = before.and_then(|spec| spec.holder_identity.as_ref()) == Some(&self.identity);
        let acquired = before.and_then(|spec| spec.acquire_time.clone()).filter(|_| ours);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(before.is_some() && !ours))),
            ..LeaseSpec::default()
        }
    }

    async fn release(&self) -> Result<(), Error> {
        let lease = self.leases.get(&self.name).await?;
        let mut spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_ref() == Some(&self.identity) {
            spec.holder_identity = Some(String::new());
            let lease = Lease { metadata: lease.metadata, spec: Some(spec) };
            self.leases.replace(&self.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_keeps_the_lease_away_is_a_problem_when_it_has_lasted_and_until_there_is_word_again() {
        crate::tls::install_provider();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let mut election = Election::new(client, "edge", "portcullis-leader", "pod".into());
        let problem = election.problem();
        let forbidden = || Some("leases is forbidden".to_owned());
        election.note(forbidden());
        assert_eq!(*problem.borrow(), None, "it may be over soon");
        tokio::time::advance(DEADLINE).await;
        election.note(forbidden());
        assert_eq!(*problem.borrow(), forbidden());
        election.note(None);
        assert_eq!(*problem.borrow(), None);
        election.note(forbidden());
        assert_eq!(*problem.borrow(), None);
    }
}
