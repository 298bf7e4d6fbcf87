//! The table of all settings, one row each: documentation, type, default, class, unit, example.
//!
//! The macro makes of it the [`Settings`] struct, its defaults, [`FIELDS`] and the diff. The struct is always taken
//! apart without `..`, so a setting that something forgets does not compile.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::choices::{ForwardClientCert, LogFormat, LogLevel, RestartMode, Source, TlsVersion};
use super::field::{Change, Class, Field, Unit, kebab_case};
use super::places::{PairPlace, TrustPlace};
use super::value::{Raw, Value};
use crate::names::object::ObjectName;
use crate::names::responder::Target;

macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $type:ty = $default:expr,
        $class:ident $(($reason:literal))?, $unit:ident $(($counted:literal))?, $example:literal;
    )+) => {
        /// All settings of a running gateway.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// Every setting, in the order of the documentation.
        pub const FIELDS: &[Field] = &[$(Field {
            key: {
                const KEY: &[u8] = &kebab_case::<{ stringify!($field).len() }>(stringify!($field));
                match std::str::from_utf8(KEY) {
                    Ok(key) => key,
                    Err(_) => panic!("field names are ASCII"),
                }
            },
            doc: concat!($($doc),+).trim_ascii_start(),
            class: Class::$class $(($reason))?,
            unit: Unit::$unit $(($counted))?,
            example: $example,
            set: |settings, raw| {
                settings.$field = Value::parse(raw, Unit::$unit $(($counted))?)?;
                Ok(())
            },
            get: |settings| settings.$field.to_json(Unit::$unit $(($counted))?),
        },)+];

        impl Settings {
            /// What differs in `new`.
            pub fn diff(&self, new: &Self) -> Vec<Change> {
                let Self { $($field,)+ } = self;
                let differs = [$(*$field != new.$field,)+];
                let changed = FIELDS.iter().zip(differs).filter(|(_, differs)| *differs);
                changed.map(|(field, _)| Change {
                    key: field.key,
                    class: field.class,
                    old: (field.get)(self),
                    new: (field.get)(new),
                }).collect()
            }

            /// These settings with the dynamic ones taken from `new`: what a running generation may serve by.
            pub fn with_dynamic(&self, new: &Self) -> Self {
                let Self { $($field,)+ } = self;
                Self { $($field: match Class::$class $(($reason))? {
                    Class::Dynamic => new.$field.clone(),
                    Class::Restart(_) => $field.clone(),
                },)+ }
            }
        }
    };
}

/// As a settings file has them.
impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FIELDS.iter().map(|field| (field.key, (field.get)(self))))
    }
}

/// From what [`Serialize`] wrote, here or in another version: settings that are not known are passed over, and
/// those that are not there have their default.
impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Self::default();
        for (key, raw) in BTreeMap::<String, Raw>::deserialize(deserializer)? {
            if let Some(field) = field(&key) {
                (field.set)(&mut settings, &raw).map_err(|e| D::Error::custom(format!("{key}: {e}")))?;
            }
        }
        Ok(settings)
    }
}

/// The setting with this key.
pub fn field(key: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.key == key)
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

settings! {
    // Where objects come from.

    /// Where Ingresses, Services and Secrets come from.
    source: Source = Source::Directory,
        Restart("sources are started with the process"), None, "kubernetes";
    /// Folders of manifests and PEM pairs that the directory source reads and watches.
    manifests: Vec<PathBuf> = Vec::new(),
        Restart("sources are started with the process"), None, "/etc/portcullis/manifests";
    /// Kubeconfig file; without one the Service Account of the pod, then `~/.kube/config`.
    kubeconfig: Option<PathBuf> = None,
        Restart("sources are started with the process"), None, "/etc/portcullis/kubeconfig";
    /// The only namespace to watch; without it all of them.
    watch_namespace: Option<String> = None,
        Restart("the watch scope is fixed when a source starts"), None, "shop";
    /// Label selector of the namespaces to watch, as `kubectl -l` takes it; without it all of them.
    watch_namespace_selector: Option<String> = None,
        Restart("the watch scope is fixed when a source starts"), None, "ingress=public";
    /// ConfigMap (namespace/name) with settings, for the Kubernetes source; flags, environment and settings file
    /// win over it.
    configmap: Option<ObjectName> = None,
        Restart("the watch scope is fixed when a source starts"), None, "ingress/portcullis";
    /// Name of the IngressClass whose Ingresses are served.
    ingress_class: String = "portcullis".into(),
        Restart("the watch scope is fixed when a source starts"), None, "nginx";
    /// Controller name of the IngressClasses that are ours.
    controller_class: String = "portcullis.dev/ingress-controller".into(),
        Restart("the watch scope is fixed when a source starts"), None, "k8s.io/ingress-nginx";
    /// Whether an IngressClass with the name `ingress-class` is ours whatever its controller.
    ingress_class_by_name: bool = false,
        Dynamic, None, "true";
    /// Whether Ingresses that name no class are served although our IngressClass is not the default one.
    watch_ingress_without_class: bool = false,
        Dynamic, None, "true";
    /// Namespace that PEM pairs of the directory source belong to.
    pem_namespace: String = "default".into(),
        Restart("sources are started with the process"), None, "web";
    /// Prefix of the annotations that ingress-nginx has; those of our own keep `portcullis.dev`.
    annotations_prefix: String = "nginx.ingress.kubernetes.io".into(),
        Dynamic, None, "ingress.example.com";
    /// Whether a Service of type ExternalName may be a backend.
    allow_external_name: bool = true,
        Dynamic, None, "false";
    /// How long a Secret that vanished keeps being served, so that deleting and creating it anew loses nothing.
    secret_grace_period: Duration = seconds(60),
        Dynamic, Time, "5m";

    // Listeners and process.

    /// Addresses to listen on. `::` takes IPv4 connections too; on a machine without IPv6 it means `0.0.0.0`.
    bind_address: Vec<IpAddr> = vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)],
        Restart("listeners are opened before workers start"), None, "192.0.2.10, 2001:db8::10";
    /// Port for plain HTTP; 0 lets the system choose.
    http_port: u16 = 8080,
        Restart("listeners are opened before workers start"), None, "80";
    /// Port for HTTPS; 0 lets the system choose.
    https_port: u16 = 8443,
        Restart("listeners are opened before workers start"), None, "443";
    /// Address of the admin port: health, metrics, JSON API and web page, without authentication.
    admin_bind_address: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST),
        Restart("listeners are opened before workers start"), None, "0.0.0.0";
    /// The admin port; 0 lets the system choose.
    admin_port: u16 = 10254,
        Restart("listeners are opened before workers start"), None, "9090";
    /// Address and port of the validating admission webhook, as `:9443`; without it there is none.
    validating_webhook: Option<SocketAddr> = None,
        Restart("listeners are opened before workers start"), None, "0.0.0.0:9443";
    /// ValidatingWebhookConfiguration that names the webhook, and whose `caBundle` the gateway writes.
    validating_webhook_configuration: String = "portcullis".into(),
        Dynamic, None, "edge-admission";
    /// Host names that the admin port answers to, besides addresses and `localhost`.
    admin_hosts: Vec<String> = Vec::new(),
        Dynamic, None, "portcullis-admin.ingress.svc";
    /// Whether every connection to the HTTP and HTTPS ports starts with a PROXY protocol header.
    use_proxy_protocol: bool = false,
        Restart("the PROXY mode belongs to a listener"), None, "true";
    /// Worker threads; 0 means one per core.
    workers: usize = 0,
        Restart("worker threads and their sockets are made at start"), Count("threads"), "4";
    /// Folder for what survives the end of the process: OCSP staples, objects (private keys among them) and, without a
    /// cluster, what the CA keeps.
    state_dir: Option<PathBuf> = None,
        Restart("state is read once, at start"), None, "/var/lib/portcullis";
    /// Whether objects are kept in `state-dir`, Secrets with their private keys among them, so that a start while
    /// the API server is away loses none. Only with the Kubernetes source.
    keep_objects: bool = true,
        Restart("sources are started with the process"), None, "false";
    /// What happens when a restart-requiring setting changes: `automatic`, `manual` (at SIGHUP) or `off`.
    restart: RestartMode = RestartMode::Automatic,
        Dynamic, None, "manual";
    /// How long a new worker generation may take to be ready before it is given up.
    restart_timeout: Duration = seconds(60),
        Dynamic, Time, "2m";
    /// How long connections may go on when their worker generation ends.
    worker_shutdown_timeout: Duration = seconds(240),
        Dynamic, Time, "30s";

    // Status and logs.

    /// Address written to the status of Ingresses; wins over `publish-service`.
    publish_status_address: Option<String> = None,
        Dynamic, None, "203.0.113.7";
    /// Service (namespace/name) whose addresses are written to the status of Ingresses; without it those of our nodes.
    publish_service: Option<ObjectName> = None,
        Dynamic, None, "ingress/portcullis";
    /// Whether, without the two settings above, the internal addresses of our nodes are published in place of external ones.
    report_node_internal_ip_address: bool = false,
        Dynamic, None, "true";
    /// Name of the Lease, in the namespace of the gateway, that says which replica writes; gateways that share a namespace need one each.
    election_id: String = "portcullis-leader".into(),
        Restart("the election begins with the process"), None, "edge-leader";
    /// Whether the last replica takes its addresses out of the status of Ingresses when it ends.
    update_status_on_shutdown: bool = false,
        Dynamic, None, "true";
    /// The least severe log line that is written: `error`, `warn`, `info`, `debug` or `trace`.
    log_level: LogLevel = LogLevel::Info,
        Dynamic, None, "debug";
    /// How lines of the own log and of the access log are written: `text` or `json`. docs/admin.md lists their fields.
    log_format: LogFormat = LogFormat::Text,
        Dynamic, None, "json";
    /// Whether a line is written for every request, with the fields that [admin.md](admin.md#the-access-log) lists.
    access_log: bool = true,
        Dynamic, None, "false";

    // TLS.

    /// Secret (namespace/name) with the certificate for clients whose name nobody has one for.
    default_ssl_certificate: Option<ObjectName> = None,
        Dynamic, None, "ingress/default-tls";
    /// Whether a request that came without SNI, on the default certificate, may ask for any host.
    default_certificate_any_host: bool = true,
        Dynamic, None, "false";
    /// Whether clients without SNI, or with a name that no certificate is for, are turned away.
    ssl_reject_handshake: bool = false,
        Dynamic, None, "true";
    /// TLS versions to negotiate: `TLSv1.2`, `TLSv1.3`.
    ssl_protocols: Vec<TlsVersion> = vec![TlsVersion::Tls12, TlsVersion::Tls13],
        Dynamic, None, "TLSv1.3";
    /// Cipher suites by their OpenSSL names, best first; empty means all that the TLS library has.
    ssl_ciphers: Vec<String> = Vec::new(),
        Dynamic, OpenSslNames, "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";
    /// Key exchange groups, best first; empty means X25519MLKEM768, X25519, P-256, P-384.
    ssl_ecdh_curve: Vec<String> = Vec::new(),
        Dynamic, OpenSslNames, "X25519:prime256v1";
    /// Whether clients may resume a session with a ticket.
    ssl_session_tickets: bool = true,
        Dynamic, None, "false";
    /// Secret (namespace/name) with session ticket keys that replicas share, of type
    /// `portcullis.dev/session-ticket-keys`; without one every replica makes and rotates its own.
    ssl_session_ticket_secret: Option<ObjectName> = None,
        Restart("Secrets that settings name are followed from the start"), None, "ingress/session-tickets";
    /// How long a session can be resumed.
    ssl_session_timeout: Duration = seconds(600),
        Dynamic, Time, "1h";
    /// Time for a TLS handshake from the first byte to the last.
    tls_handshake_timeout: Duration = seconds(10),
        Dynamic, Time, "5s";
    /// Handshakes that one worker has under way at once; when there are more, the oldest is given up.
    max_handshakes: usize = 512,
        Dynamic, Count("handshakes per worker"), "2048";
    /// Whether OCSP answers are fetched and stapled.
    enable_ocsp: bool = true,
        Dynamic, None, "false";
    /// Networks that OCSP requests may go to although they are private, loopback or link-local.
    ocsp_allowed_cidrs: Vec<IpNet> = Vec::new(),
        Dynamic, None, "10.0.0.0/8";
    /// How long a certificate that demands stapling waits for its first answer before it is served without.
    ocsp_must_staple_deadline: Duration = seconds(30),
        Dynamic, Time, "10s";
    /// Time for one OCSP request.
    ocsp_timeout: Duration = seconds(5),
        Dynamic, Time, "2s";
    /// OCSP requests under way at once.
    ocsp_concurrency: usize = 8,
        Dynamic, Count("requests"), "32";
    /// Responders to ask in place of those that certificates name, as `http://old=http://new`.
    ocsp_responder_overrides: BTreeMap<String, Target> = BTreeMap::new(),
        Dynamic, None, "http://ocsp.example.com=http://ocsp.internal:8080";
    /// HTTP proxy for OCSP requests.
    ocsp_proxy: Option<Target> = None,
        Dynamic, None, "http://proxy.internal:3128";

    // The mesh.

    /// Port that asks clients for a certificate of the mesh; without it there is none. 0 lets the system choose.
    mesh_port: Option<u16> = None,
        Restart("listeners are opened before workers start"), None, "15443";
    /// Port that terminates the tunnels of ambient node proxies (HBONE), 15008 by convention; without it there is none. 0 lets the system choose.
    hbone_port: Option<u16> = None,
        Restart("listeners are opened before workers start"), None, "15008";
    /// The gateway's own certificate of the mesh, shown on the HBONE port: a Secret (namespace/name) or a folder.
    hbone_certificate: Option<PairPlace> = None,
        Dynamic, None, "ingress/portcullis-mesh";
    /// Whether tunnels need a client certificate. Without one a tunnel has no identity, ever.
    hbone_client_certificate: bool = true,
        Dynamic, None, "false";
    /// How long a tunnel may be silent in both directions.
    hbone_idle_timeout: Duration = seconds(3600),
        Dynamic, Time, "10m";
    /// Root certificates of the mesh and its revocation lists, under `root-cert.pem` and `ca-crl.pem`: a ConfigMap (namespace/name), `secret:` and a Secret, or an absolute path.
    mesh_trust_bundle: TrustPlace = TrustPlace::ConfigMap(ObjectName::new("istio-system", "istio-ca-root-cert")),
        Dynamic, None, "secret:mesh/roots";
    /// Namespace whose policies apply to the whole mesh.
    mesh_root_namespace: String = "istio-system".into(),
        Restart("the watch scope is fixed when a source starts"), None, "mesh";
    /// Trust domain of the mesh: clients of another one are turned away.
    mesh_trust_domain: String = "cluster.local".into(),
        Dynamic, None, "mesh.example";
    /// Other names of the same trust domain.
    mesh_trust_domain_aliases: Vec<String> = Vec::new(),
        Dynamic, None, "old.example";
    /// What becomes of the header x-forwarded-client-cert: `sanitize-set` replaces it by the client's certificate.
    forward_client_cert: ForwardClientCert = ForwardClientCert::SanitizeSet,
        Dynamic, None, "sanitize";
    /// Networks of peers whose x-forwarded-client-cert may be passed on.
    forward_client_cert_cidr: Vec<IpNet> = Vec::new(),
        Dynamic, None, "10.0.0.0/8";

    // The workload CA.

    /// Whether the gateway runs the workload CA, in threads of its own beside the workers.
    ca: bool = false,
        Restart("the CA is started with the process"), None, "true";
    /// Address of the CA's CSR service.
    ca_bind_address: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST),
        Restart("listeners are opened before workers start"), None, "10.0.0.5";
    /// Port of the CA's CSR service; 0 lets the system choose.
    ca_port: u16 = 8060,
        Restart("listeners are opened before workers start"), None, "15012";
    /// Namespace of the CA's own Secrets.
    ca_storage_namespace: String = "istio-system".into(),
        Restart("the CA is started with the process"), None, "mesh";
    /// SPIFFE trust domain of what the CA issues.
    ca_trust_domain: String = "cluster.local".into(),
        Restart("the CA is started with the process"), None, "mesh.example";
    /// Folder with a plugged-in CA; without one the Secret `cacerts`, then a root of its own.
    ca_dir: Option<PathBuf> = None,
        Restart("the CA is started with the process"), None, "/etc/cacerts";
    /// Whether every ServiceAccount gets a Secret with key and certificate.
    ca_accounts: bool = true,
        Restart("the CA is started with the process"), None, "false";
    /// Whether Ingresses with the annotation `issue-certificate` get TLS Secrets from the CA.
    ca_ingress_certificates: bool = true,
        Restart("the CA is started with the process"), None, "false";
    /// DNS names and addresses in the certificate of the CSR service.
    ca_host_identities: Vec<String> =
            vec!["istio-ca".into(), "istio-citadel".into(), "localhost".into(), "127.0.0.1".into()],
        Restart("the CA is started with the process"), None, "portcullis.ingress.svc";
    /// Issuers of tokens that callers may show, each with its keys, as `issuer=file` or `issuer=https://…`.
    ca_jwt_issuers: BTreeMap<String, String> = BTreeMap::new(),
        Restart("the CA is started with the process"), None, "https://issuer.example=/etc/jwks.json";
    /// PEM file with the roots that https URLs of `ca-jwt-issuers` verify against, in place of the web's.
    ca_jwks_roots: Option<PathBuf> = None,
        Restart("the CA is started with the process"), None, "/etc/issuer-roots.pem";
    /// Audiences of which a token needs one.
    ca_token_audiences: Vec<String> = vec!["istio-ca".into()],
        Restart("the CA is started with the process"), None, "istio-ca, mesh";
    /// What callers call the cluster that the CA is in; an empty name means it too.
    ca_cluster_id: String = "Kubernetes".into(),
        Restart("the CA is started with the process"), None, "east";
    /// ServiceAccounts (namespace/name) that may ask for the identities of workloads on their node.
    ca_trusted_node_accounts: Vec<ObjectName> = Vec::new(),
        Restart("the CA is started with the process"), None, "istio-system/ztunnel";
    /// Life of certificates whose request names none.
    ca_workload_cert_ttl: Duration = seconds(24 * 3600),
        Restart("the CA is started with the process"), Time, "12h";
    /// Longest life that a request may name.
    ca_max_workload_cert_ttl: Duration = seconds(90 * 24 * 3600),
        Restart("the CA is started with the process"), Time, "72h";
    /// Life of certificates in Secrets, of ServiceAccounts and of hosts.
    ca_secret_cert_ttl: Duration = seconds(90 * 24 * 3600),
        Restart("the CA is started with the process"), Time, "720h";
    /// ServiceAccount (namespace/name) whose identity the gateway shows to backends with `backend-mtls`.
    ca_gateway_account: Option<ObjectName> = None,
        Restart("the CA is started with the process"), None, "ingress/portcullis";

    // Redirects and HSTS.

    /// Whether HTTP is redirected to HTTPS for hosts that have a certificate.
    ssl_redirect: bool = true,
        Dynamic, None, "false";
    /// Whether HTTP is redirected to HTTPS even for hosts without a certificate.
    force_ssl_redirect: bool = false,
        Dynamic, None, "true";
    /// Status of redirects to HTTPS: 301, 302, 303, 307 or 308.
    http_redirect_code: u16 = 308,
        Dynamic, None, "301";
    /// Paths that are never redirected to HTTPS, and that what another Ingress asks of their host (`auth-tls-*` in the
    /// clear, `server-snippet`) does not close: those of Ingress rules that start with one of these. The path of the request
    /// does not count.
    no_tls_redirect_locations: Vec<String> = vec!["/.well-known/acme-challenge".into()],
        Dynamic, None, "/.well-known/acme-challenge, /healthz";
    /// Whether Strict-Transport-Security (RFC 6797) is sent over HTTPS.
    hsts: bool = true,
        Dynamic, None, "false";
    /// How long browsers remember Strict-Transport-Security.
    hsts_max_age: u64 = 31_536_000,
        Dynamic, Seconds, "63072000";
    /// Whether Strict-Transport-Security counts for subdomains.
    hsts_include_subdomains: bool = true,
        Dynamic, None, "false";
    /// Whether the host may go on the preload lists of browsers.
    hsts_preload: bool = false,
        Dynamic, None, "true";

    // Clients.

    /// Whether HTTP/2 is offered.
    use_http2: bool = true,
        Dynamic, None, "false";
    /// Requests that one HTTP/2 connection may have open at once.
    http2_max_concurrent_streams: u32 = 128,
        Dynamic, Count("streams"), "256";
    /// Connections that one worker has open at once; more wait in the kernel.
    max_connections: usize = 16_384,
        Dynamic, Count("connections per worker"), "65536";
    /// How long an idle client connection is kept; 0 closes it after each response.
    keep_alive: Duration = seconds(75),
        Dynamic, Time, "30s";
    /// Time for a client to send the head of a request.
    client_header_timeout: Duration = seconds(10),
        Dynamic, Time, "60s";
    /// Longest pause between two reads of a request body.
    client_body_timeout: Duration = seconds(60),
        Dynamic, Time, "20s";
    /// Largest head of a request.
    client_max_header_bytes: usize = 64 * KIB as usize,
        Dynamic, Bytes, "32k";
    /// Most header fields of a request.
    client_max_header_count: usize = 100,
        Dynamic, Count("fields"), "200";
    /// Largest request body; 0 means no limit.
    proxy_body_size: Option<u64> = Some(MIB),
        Dynamic, Bytes, "8m";
    /// Whether request headers with an underscore in their name are passed on.
    enable_underscores_in_headers: bool = false,
        Dynamic, None, "true";
    /// Whether the `Server` header of backends is passed on to clients. Responses of our own have none.
    server_tokens: bool = false,
        Dynamic, None, "true";
    /// Time for the PROXY protocol header to arrive.
    proxy_protocol_header_timeout: Duration = seconds(5),
        Dynamic, Time, "2s";
    /// Networks of peers whose PROXY protocol headers and X-Forwarded headers are believed; empty: nobody's.
    proxy_real_ip_cidr: Vec<IpNet> = Vec::new(),
        Dynamic, None, "10.0.0.0/8, 2001:db8::/32";
    /// The only networks of clients that routes are for, unless an Ingress says otherwise by annotation; empty: everybody's.
    whitelist_source_range: Vec<IpNet> = Vec::new(),
        Dynamic, None, "10.0.0.0/8, 192.0.2.7";
    /// Networks of clients that get 403 from routes, unless an Ingress says otherwise by annotation.
    denylist_source_range: Vec<IpNet> = Vec::new(),
        Dynamic, None, "198.51.100.0/24";
    /// Status of requests beyond `limit-rps` and `limit-rpm` of their Ingress, from 400 to 599.
    limit_req_status_code: u16 = 503,
        Dynamic, None, "429";
    /// Status of requests beyond `limit-connections` of their Ingress, from 400 to 599.
    limit_conn_status_code: u16 = 503,
        Dynamic, None, "429";
    /// Networks of clients that get 403 whatever they ask for and whatever an Ingress says.
    block_cidrs: Vec<IpNet> = Vec::new(),
        Dynamic, None, "198.51.100.0/24, 203.0.113.9";
    /// Whether X-Forwarded headers of trusted peers are used and passed on.
    use_forwarded_headers: bool = false,
        Dynamic, None, "true";
    /// Whether the peer's address is appended to X-Forwarded-For instead of replacing it.
    compute_full_forwarded_for: bool = false,
        Dynamic, None, "true";

    // Upstreams.

    /// Time to connect to an endpoint.
    proxy_connect_timeout: Duration = seconds(5),
        Dynamic, Time, "2s";
    /// Longest pause between two reads from an endpoint.
    proxy_read_timeout: Duration = seconds(60),
        Dynamic, Time, "5m";
    /// Longest pause between two writes to an endpoint.
    proxy_send_timeout: Duration = seconds(60),
        Dynamic, Time, "5m";
    /// Whether requests go to the address of a Service and not to its endpoints, where an Ingress does not say
    /// (annotation `service-upstream`).
    service_upstream: bool = false,
        Dynamic, None, "true";
    /// Attempts for one request, each at another endpoint while there is one; 0 means one for every endpoint. More than
    /// 16 are never made.
    proxy_next_upstream_tries: u32 = 3,
        Dynamic, Count("attempts"), "1";
    /// Whether requests that aren't idempotent are tried again after an endpoint closed the connection without an answer,
    /// although it may have acted on them. Only those without a body: what has been sent of a body is not kept.
    retry_non_idempotent: bool = false,
        Dynamic, None, "true";
    /// Idle HTTP/1.1 connections that one worker keeps to endpoints; 0 keeps none.
    upstream_keepalive_connections: usize = 320,
        Dynamic, Count("connections per worker"), "64";
    /// How long an idle connection to an endpoint is kept.
    upstream_keepalive_timeout: Duration = seconds(60),
        Dynamic, Time, "30s";
}

#[cfg(test)]
mod tests;
