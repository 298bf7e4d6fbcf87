//! What the CA counts and measures, under the names that dashboards for Istio's CA know.
//!
//! Counters are gauges that only grow: the text format would append `_total` to a counter's name, and the names
//! are the contract. Expiry is set from the authority in use, after every change of it.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;

use super::accounts::Reconciled;
use super::authority::{Authority, IssueError};

type Number = Gauge<i64, AtomicI64>;

/// The label of failures to sign.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SignError {
    error: &'static str,
}

/// All metrics of the CA. Cheap to clone; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub csr_count: Number,
    pub authentication_failures: Number,
    pub csr_parsing_errors: Number,
    pub id_extraction_errors: Number,
    pub issued: Number,
    pub secrets_created: Number,
    pub secrets_refreshed: Number,
    pub secrets_deleted: Number,
    pub secrets_failed: Number,
    pub host_certificates: Number,
    pub host_certificates_failed: Number,
    sign_errors: Family<SignError, Number>,
    root_expiry_timestamp: Number,
    root_expiry_seconds: Number,
    chain_expiry_timestamp: Number,
    chain_expiry_seconds: Number,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let server = registry.sub_registry_with_prefix("citadel_server");
        let mut add = |name: &str, help: &str, metric: &Number| server.register(name, help, metric.clone());
        add("csr_count", "Signing requests received", &self.csr_count);
        add(
            "authentication_failure_count",
            "Callers that were not authenticated",
            &self.authentication_failures,
        );
        add("csr_parsing_err_count", "Signing requests that do not parse", &self.csr_parsing_errors);
        add("id_extraction_err_count", "Callers without a usable identity", &self.id_extraction_errors);
        add("success_cert_issuance_count", "Certificates issued", &self.issued);
        add("root_cert_expiry_timestamp", "Unix time at which the root ends", &self.root_expiry_timestamp);
        add("root_cert_expiry_seconds", "Seconds until the root ends", &self.root_expiry_seconds);
        add("cert_chain_expiry_timestamp", "Unix time at which the chain ends", &self.chain_expiry_timestamp);
        add("cert_chain_expiry_seconds", "Seconds until the chain ends", &self.chain_expiry_seconds);
        server.register("csr_sign_err_count", "Requests that were not signed", self.sign_errors.clone());
        let accounts = registry.sub_registry_with_prefix("citadel_secret_controller");
        let mut add = |name: &str, help: &str, metric: &Number| accounts.register(name, help, metric.clone());
        add("secret_created_count", "Secrets of accounts created", &self.secrets_created);
        add("secret_refreshed_count", "Secrets of accounts refreshed", &self.secrets_refreshed);
        add("secret_deleted_cert_count", "Secrets of accounts deleted", &self.secrets_deleted);
        add("secret_failed_count", "Secrets of accounts that failed", &self.secrets_failed);
        let hosts = registry.sub_registry_with_prefix("portcullis_ca");
        let mut add = |name: &str, help: &str, metric: &Number| hosts.register(name, help, metric.clone());
        add("host_certificate_count", "Certificates of hosts issued", &self.host_certificates);
        add(
            "host_certificate_failed_count",
            "Certificates of hosts that failed",
            &self.host_certificates_failed,
        );
    }

    /// Takes the ends of root and chain from the authority in use. An ended one counts below zero.
    pub fn set_expiry(&self, authority: &Authority, now: OffsetDateTime) {
        let root = authority.roots().iter().next().map_or(now, |root| root.not_after);
        let chain = authority.end_of_life();
        self.root_expiry_timestamp.set(root.unix_timestamp());
        self.root_expiry_seconds.set((root - now).whole_seconds());
        self.chain_expiry_timestamp.set(chain.unix_timestamp());
        self.chain_expiry_seconds.set((chain - now).whole_seconds());
    }

    pub fn count_sign_error(&self, error: &IssueError) {
        if matches!(error, IssueError::Csr(_)) {
            self.csr_parsing_errors.inc();
        }
        self.sign_errors.get_or_create(&SignError { error: error.label() }).inc();
    }

    pub fn count_hosts(&self, done: &Reconciled) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.host_certificates.inc_by(count(done.created + done.refreshed));
        self.host_certificates_failed.inc_by(count(done.failed.len()));
    }

    pub fn count_accounts(&self, done: &Reconciled) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.secrets_created.inc_by(count(done.created));
        self.secrets_refreshed.inc_by(count(done.refreshed + done.roots_updated));
        self.secrets_deleted.inc_by(count(done.deleted));
        self.secrets_failed.inc_by(count(done.failed.len()));
    }
}

#[cfg(test)]
mod tests;
