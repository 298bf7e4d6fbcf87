//! The table of all metric families, from which the exposition takes names, types and labels, and
//! `docs/metrics.md` its rows. Those that ingress-nginx has keep its names, so that dashboards and alerts go
//! on working; those of our own start with `portcullis_`.

/// A metric and the labels that tell its samples apart.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// One line; no backslash and no line break, which the text format would have to escape.
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    /// Whether ingress-nginx has it too; those carry the labels of the controller.
    pub fn is_of_ingress_nginx(&self) -> bool {
        self.name.starts_with("nginx_ingress_controller_")
    }
}

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal $labels:tt $help:literal;)+) => {
        $(pub static $constant: Family =
            Family { name: $name, kind: Kind::$kind, labels: &$labels, help: $help };)+

        /// Every family, in the order of the exposition.
        #[cfg(test)]
        pub static FAMILIES: &[&Family] = &[$(&$constant,)+];
    };
}

const ROUTE: [&str; 6] = ["path", "namespace", "ingress", "service", "canary", "host"];

families! {
    // Traffic.
    REQUESTS: Counter "nginx_ingress_controller_requests"
        ["status", "method", "path", "namespace", "ingress", "service", "canary", "host"]
        "Requests by route, status and method; host _unknown is no configured host.";
    REQUEST_DURATION: Histogram "nginx_ingress_controller_request_duration_seconds" ROUTE
        "Time from the head of a request to the end of its response, transfer to the client included.";
    RESPONSE_DURATION: Histogram "nginx_ingress_controller_response_duration_seconds" ROUTE
        "Time from a request sent to the head of the backend's response.";
    REQUEST_SIZE: Histogram "nginx_ingress_controller_request_size" ROUTE
        "Bytes of request bodies.";
    RESPONSE_SIZE: Histogram "nginx_ingress_controller_response_size" ROUTE
        "Bytes of response bodies.";
    CONNECTIONS: Gauge "nginx_ingress_controller_nginx_process_connections" ["state"]
        "Connections from clients that are open; the only state is active.";
    CONNECTIONS_TOTAL: Counter "nginx_ingress_controller_nginx_process_connections_total" ["state"]
        "Connections from clients so far; the only state is accepted.";
    REQUESTS_TOTAL: Counter "nginx_ingress_controller_nginx_process_requests_total" []
        "Requests so far.";

    // Certificates.
    EXPIRE_TIME: Gauge "nginx_ingress_controller_ssl_expire_time_seconds"
        ["namespace", "class", "host", "secret_name", "identifier"]
        "End of validity of the certificates that a host is served with, in seconds since the Unix epoch; host _ is the default certificate.";
    CERTIFICATE_INFO: Gauge "nginx_ingress_controller_ssl_certificate_info"
        ["namespace", "class", "host", "secret_name", "identifier", "issuer_organization", "issuer_common_name", "serial_number", "public_key_algorithm"]
        "Always 1; tells which certificates a host is served with.";

    // Configuration.
    BUILD_INFO: Gauge "nginx_ingress_controller_build_info" ["release", "build", "repository"]
        "Always 1; tells which version runs.";
    CONFIG_HASH: Gauge "nginx_ingress_controller_config_hash" []
        "A number that is the same on replicas with the same settings.";
    RELOAD_SUCCESSFUL: Gauge "nginx_ingress_controller_config_last_reload_successful" []
        "0 while the last edit of the settings is refused or the last new worker generation was given up.";
    RELOAD_TIME: Gauge "nginx_ingress_controller_config_last_reload_successful_timestamp_seconds" []
        "When settings were last taken over.";
    LEADER: Gauge "nginx_ingress_controller_leader_election_status" ["name"]
        "1 on the replica that writes status and Events.";
    ORPHAN_INGRESS: Gauge "nginx_ingress_controller_orphan_ingress" ["namespace", "ingress", "type"]
        "1 for an Ingress that leads to a Service without endpoints (no-endpoint) or to none (no-service).";

    // What ingress-nginx does not tell.
    READY: Gauge "portcullis_ready" []
        "1 while traffic should come here.";
    GENERATION: Gauge "portcullis_generation" []
        "Counts up with every snapshot that is published.";
    CONFIG_CHANGES: Counter "portcullis_config_changes_total" ["class"]
        "Changed settings and objects by class: dynamic, applied in place, or restart, for a new worker generation; and rejected, edits of the settings that were refused. Goes on across generations.";
    APPLY_DURATION: Histogram "portcullis_config_apply_duration_seconds" []
        "Time from a change taken up to the snapshot that holds it.";
    RESTART_PENDING: Gauge "portcullis_restart_pending" []
        "Changed settings that wait for a new worker generation.";
    SOURCE_SYNCED: Gauge "portcullis_source_synced" ["source"]
        "1 once the source has listed everything.";
    SOURCE_STALE: Gauge "portcullis_source_stale" ["source"]
        "1 while objects are served as they were kept in the state directory, because the source has not answered since the start.";
    WATCH_UP: Gauge "portcullis_watch_up" ["source"]
        "1 while changes arrive from the source.";
    DIAGNOSTICS: Gauge "portcullis_diagnostics" ["severity", "reason"]
        "Findings about objects and settings.";
    HOSTS: Gauge "portcullis_hosts" []
        "Hosts that are served.";
    CLUSTERS: Gauge "portcullis_clusters" []
        "Backends that routes lead to.";
    ENDPOINTS: Gauge "portcullis_endpoints" []
        "Endpoints of all backends.";
    CERTIFICATE_ERRORS: Gauge "portcullis_certificate_errors" ["namespace", "secret_name", "reason"]
        "1 for each error of a Secret: a certificate or key that cannot be used, while an older one may be served, or one that has expired.";
    CERTIFICATES: Gauge "portcullis_certificates" ["state"]
        "Certificates by state: valid, expiring (within 14 days), expired or not_yet_valid.";
    OCSP: Gauge "portcullis_ocsp_certificates" ["state"]
        "Certificates by the state of their OCSP staple.";
    STAPLE_AGE: Gauge "portcullis_ocsp_staple_age_seconds" ["namespace", "secret_name", "serial_number"]
        "Time since the thisUpdate of a staple.";
    STAPLE_REMAINING: Gauge "portcullis_ocsp_staple_remaining_seconds"
        ["namespace", "secret_name", "serial_number"]
        "Time to the nextUpdate of a staple, from which on it is not sent.";
    WORKER_CONNECTIONS: Gauge "portcullis_worker_connections" ["worker"]
        "Connections from clients that a worker has open.";
    REQUESTS_IN_FLIGHT: Gauge "portcullis_requests_in_flight" []
        "Requests whose response is not over.";
    HANDSHAKES: Counter "portcullis_tls_handshakes_total" ["result"]
        "TLS handshakes by result: full, resumed or failed.";
    HANDSHAKE_FAILURES: Counter "portcullis_tls_handshake_failures_total" ["reason"]
        "TLS handshakes that came to nothing.";
    SNI_NO_MATCH: Counter "portcullis_sni_no_match_total" []
        "TLS handshakes that asked for a name which no certificate is bound to, and got the default certificate.";
    DEFAULT_CERTIFICATE: Counter "portcullis_default_certificate_served_total" ["host_configured"]
        "Full TLS handshakes with the default certificate; host_configured is true for a host that is served, whose own certificate is missing.";
    CERTIFICATE_HANDSHAKES: Counter "portcullis_certificate_handshakes_total" ["namespace", "secret_name", "host"]
        "Full TLS handshakes by certificate and the host it was served for, once there was one; host _ is the default certificate.";
    HANDSHAKES_STAPLED: Counter "portcullis_tls_handshakes_stapled_total" []
        "Full TLS handshakes for which a fresh OCSP staple was at hand; it goes to clients that ask for one.";
    HANDSHAKES_UNSTAPLED: Counter "portcullis_tls_handshakes_unstapled_total" []
        "Full TLS handshakes without a staple though the certificate names an OCSP responder.";
    MUST_STAPLE_UNSTAPLED: Counter "portcullis_must_staple_unstapled_total" []
        "Full TLS handshakes without a staple though the certificate must be stapled.";
    POLICY_DECISIONS: Counter "portcullis_policy_decisions_total" ["namespace", "policy", "reason"]
        "Requests that policies decided about, by the policy that did (empty where it was the absence of one).";
    POLICY_DANGLING: Gauge "portcullis_policy_dangling_keys" []
        "Policies that workloads refer to and that are not there; each denies. It should be 0.";
    POLICY_REJECTED: Gauge "portcullis_policies_rejected" []
        "Policies with an error: an older version is in force, or they are closed. It should be 0.";
    POLICY_DRY_RUN: Counter "portcullis_policy_dry_run_total" ["namespace", "policy", "action", "matched"]
        "Requests and tunnels that a policy in dry run was held against, and whether it matched; a DENY that matches would refuse.";
    TUNNELS_OPEN: Gauge "portcullis_hbone_tunnels" []
        "Tunnels that are open.";
    TUNNELS: Counter "portcullis_hbone_tunnels_total" ["result"]
        "Tunnels that were asked for, by result: opened, denied (by policy), refused (no workload of ours) or unavailable.";
    HANDSHAKES_IN_FLIGHT: Gauge "portcullis_tls_handshakes_in_flight" []
        "TLS handshakes under way.";
    UPSTREAM_IDLE: Gauge "portcullis_upstream_idle_connections" []
        "Idle connections kept to endpoints.";
    PROXY_HEADERS_REFUSED: Counter "portcullis_proxy_headers_refused_total" []
        "Connections without a usable PROXY protocol header on a port that wants one.";
    RESPONSES_BROKEN: Counter "portcullis_responses_broken_total" []
        "Responses that ended before they were whole; the log line of the request says whether the client left, the endpoint broke off or policy did.";
    PANICS: Counter "portcullis_panics_total" []
        "Connections and streams that ended in a panic; each is a bug worth a report.";
    ACCESS_LOG_DROPPED: Counter "portcullis_access_log_dropped_lines_total" []
        "Access log lines dropped because their reader was too slow.";

    // The process.
    PROCESS_CPU: Counter "process_cpu_seconds_total" []
        "Processor time of the process.";
    PROCESS_RESIDENT: Gauge "process_resident_memory_bytes" []
        "Resident memory.";
    PROCESS_VIRTUAL: Gauge "process_virtual_memory_bytes" []
        "Virtual memory.";
    PROCESS_THREADS: Gauge "process_threads" []
        "Threads.";
    PROCESS_FDS: Gauge "process_open_fds" []
        "Open file descriptors.";
    PROCESS_MAX_FDS: Gauge "process_max_fds" []
        "File descriptors that may be open.";
    PROCESS_START: Gauge "process_start_time_seconds" []
        "When the process started, in seconds since the Unix epoch.";
}
