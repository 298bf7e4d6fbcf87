//! Requests to the API server, for every part that reads there or writes: sources, status, the CA, the webhook. Each is bounded
//! in time by us: a server that hangs must not hang the gateway.
//!
//! `kube` brings what every client has to do the same way (kubeconfig, Service Account tokens that are read
//! again, the CA, exec plugins); requests and answers are plain HTTP and JSON text.

mod backoff;
mod discovery;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use tokio::time::timeout;
use zeroize::Zeroizing;

pub use backoff::Backoff;

/// Time to connect, TLS handshake included.
const CONNECT: Duration = Duration::from_secs(5);
/// Time for the head of an answer. A watch is answered at once; a list may first wait for the watch cache,
/// which gives up after 3 s.
const HEAD: Duration = Duration::from_secs(15);
/// Longest pause within the answer to a list.
const BODY: Duration = Duration::from_secs(15);
/// Longest answer but for a watch, in bytes: what is in memory as text at once.
const LONGEST_ANSWER: usize = 64 << 20;
/// Longest line of a watch. Objects have at most 1.5 MiB in etcd, a little more as JSON.
const LONGEST_LINE: usize = 8 << 20;

/// Why a request came to nothing. Never carries what was in a body, which may be a Secret.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    #[error("no credentials for the API server: {0}")]
    Credentials(String),
    #[error("the API server did not answer in time")]
    Timeout,
    #[error("the API server ended the answer")]
    Ended,
    #[error("{message} (HTTP {code})")]
    Refused { code: u16, message: String, retry_after: Option<Duration> },
    /// Code 410: what was asked for is older than what the server remembers.
    #[error("the API server has forgotten the version that was watched")]
    Expired,
    /// etcd was restored from a backup: a watch from a version that is yet to come says nothing at all.
    #[error("the API server's data is older than what it sent before")]
    Rewound,
    /// A list may be had in smaller pages.
    #[error("an answer of the API server is longer than {} MiB", LONGEST_ANSWER >> 20)]
    TooLarge,
    #[error("the API server sent something unreadable")]
    Unreadable,
    /// Not for lack of a right: the server itself says that it has no such kind.
    #[error("the API server does not have this kind")]
    Absent,
    #[error("other namespaces are selected than before")]
    Reselected,
}

/// A connection to one API server. Copies share it.
#[derive(Clone)]
pub struct Api {
    client: Client,
    /// Where it is: host, port and path of its URL.
    server: Arc<str>,
}

/// Makes a client from this kubeconfig file, else the Service Account of the pod, else `$KUBECONFIG` or
/// `~/.kube/config`. Does not connect yet.
///
/// # Errors
/// There are no credentials, or they cannot be read.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Api, ApiError> {
    let credentials = |error: &dyn std::error::Error| ApiError::Credentials(chain(error));
    let file = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            return Api::new(Config::incluster().map_err(|error| credentials(&error))?);
        }
        None => Kubeconfig::read(),
    };
    let file = file.map_err(|error| credentials(&error))?;
    let authority = authority_file(&file);
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let mut config = config.map_err(|error| credentials(&error))?;
    config.root_cert_file = authority;
    Api::new(config)
}

/// The file of the CA that the current context trusts. The client reads it again every minute, as it does in a pod.
fn authority_file(file: &Kubeconfig) -> Option<PathBuf> {
    let current = file.current_context.as_ref()?;
    let context = file.contexts.iter().find(|context| context.name == *current)?.context.as_ref()?;
    let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster)?.cluster.as_ref()?;
    // What is written in the kubeconfig itself wins over a file.
    let path = cluster.certificate_authority.as_ref();
    path.filter(|_| cluster.certificate_authority_data.is_none()).map(PathBuf::from)
}

impl Api {
    pub(crate) fn new(mut config: Config) -> Result<Self, ApiError> {
        config.connect_timeout = Some(CONNECT);
        // Each caller has a backoff of its own that knows what it waits for.
        config.default_retry = false;
        let url = &config.cluster_url;
        let port = url.port_u16().map_or(String::new(), |port| format!(":{port}"));
        let server = format!("{}{port}{}", url.host().unwrap_or_default(), url.path()).into();
        Ok(Self { client: Client::try_from(config)?, server })
    }

    /// Which API server it is, for telling two apart.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The client, for what is written.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The whole answer to a GET of `path`.
    pub async fn get(&self, path: &str) -> Result<Zeroizing<Vec<u8>>, ApiError> {
        read(self.send(Method::GET, path, None).await?.into_body()).await
    }

    /// The answer to a watch, line by line.
    pub async fn watch(&self, path: &str) -> Result<Lines, ApiError> {
        let response = self.send(Method::GET, path, None).await?;
        Ok(Lines { body: response.into_body(), buffer: Zeroizing::default(), taken: 0 })
    }

    /// The whole answer to a request that changes something: `body` is JSON of this media type.
    pub async fn write(
        &self,
        method: Method,
        path: &str,
        media_type: &'static str,
        body: Zeroizing<String>,
    ) -> Result<Zeroizing<Vec<u8>>, ApiError> {
        read(self.send(method, path, Some((media_type, body))).await?.into_body()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: Option<(&'static str, Zeroizing<String>)>,
    ) -> Result<Response<Body>, ApiError> {
        let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
        let body = match content {
            None => Body::empty(),
            Some((media_type, body)) => {
                request = request.header(CONTENT_TYPE, media_type);
                Body::from(body.as_bytes().to_vec())
            }
        };
        let request = request.body(body).map_err(|error| ApiError::Unreachable(error.to_string()))?;
        let response = timeout(HEAD, self.client.send(request)).await.map_err(|_| ApiError::Timeout)??;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::GONE => Err(ApiError::Expired),
            _ => Err(refusal(response).await),
        }
    }
}

/// `v1 Status`, which comes with every refusal.
#[derive(Default, Deserialize)]
pub struct Status {
    #[serde(default)]
    pub code: u16,
    #[serde(default)]
    pub message: String,
}

async fn refusal(response: Response<Body>) -> ApiError {
    let code = response.status().as_u16();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body = read(response.into_body()).await.unwrap_or_default();
    let status: Status = serde_json::from_slice(&body).unwrap_or_default();
    let message = match status.message {
        // Not from an API server but from something in front of it.
        message if message.is_empty() => "the request was refused".to_owned(),
        message => message,
    };
    ApiError::Refused { code, message, retry_after: seconds.map(Duration::from_secs) }
}

async fn read(mut body: Body) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let mut bytes = Zeroizing::new(Vec::new());
    while let Some(frame) = timeout(BODY, body.frame()).await.map_err(|_| ApiError::Timeout)? {
        if let Ok(data) = frame?.into_data() {
            if bytes.len() + data.len() > LONGEST_ANSWER {
                return Err(ApiError::TooLarge);
            }
            Vec::extend_from_slice(&mut bytes, &data);
        }
    }
    Ok(bytes)
}

/// A watch under way.
pub struct Lines {
    body: Body,
    buffer: Zeroizing<Vec<u8>>,
    /// How much of the buffer was given out.
    taken: usize,
}

impl Lines {
    /// Waits for more; `false` at the end. Nothing is lost where this is given up half-way.
    pub async fn fill(&mut self) -> Result<bool, ApiError> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if let Ok(data) = frame?.into_data() {
            self.buffer.extend_from_slice(&data);
        }
        match self.buffer.len() > LONGEST_LINE && !self.buffer.contains(&b'\n') {
            true => Err(ApiError::Unreadable),
            false => Ok(true),
        }
    }

    /// The next line that has arrived whole.
    pub fn next_line(&mut self) -> Option<&[u8]> {
        let rest = self.buffer.get(self.taken..)?;
        let length = memchr::memchr(b'\n', rest)?;
        let line = rest.get(..length)?;
        self.taken += length + 1;
        Some(line)
    }
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        use kube::client::AuthError;
        match error {
            // Its text has all that the plugin printed, which may be a token.
            kube::Error::Auth(AuthError::AuthExecRun { cmd, out }) => {
                Self::Credentials(format!("{cmd} failed with {}", out.status))
            }
            kube::Error::Auth(error) => Self::Credentials(chain(&error)),
            error => Self::Unreachable(chain(&error)),
        }
    }
}

/// An error and its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            let _ = write!(text, ": {message}");
        }
        cause = error.source();
    }
    text
}
