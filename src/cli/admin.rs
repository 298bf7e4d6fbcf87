//! Asks the admin port of a running gateway; what `certs` and `status` have in common.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Where to ask and how to print.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Address of the admin port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10254")]
    pub admin: String,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

/// Why there is no answer to print.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(
        "cannot reach the admin port at {address}: {source}\n\
         Is portcullis serve running? Its settings admin-bind-address and admin-port say where it listens; \
         name the place with --admin ADDRESS."
    )]
    Connect { address: String, source: io::Error },
    #[error("no answer from {0} within {limit} s; is that the admin port of portcullis?", limit = TIMEOUT.as_secs())]
    Timeout(String),
    #[error("what listens at {address} does not answer as the admin port does: {problem}\nIs --admin right?")]
    Answer { address: String, problem: String },
    #[error("cannot write the answer: {0}")]
    Write(#[from] io::Error),
}

const PORT: u16 = 10254;
const TIMEOUT: Duration = Duration::from_secs(30);
/// 100,000 certificates fit.
const LARGEST: usize = 256 * 1024 * 1024;

impl AdminArgs {
    /// The JSON at `path`.
    pub fn get(&self, path: &str) -> Result<Value, AdminError> {
        let address = address(&self.admin);
        let connect = |source| AdminError::Connect { address: address.clone(), source };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(connect)?;
        runtime.block_on(async {
            let answer = timeout(TIMEOUT, ask(&address, path)).await;
            answer.unwrap_or_else(|_| Err(AdminError::Timeout(address.clone())))
        })
    }

    /// Prints `answer` as JSON, or the table made of it.
    pub fn print(&self, answer: &Value, table: impl FnOnce(&Value) -> String) -> Result<(), AdminError> {
        let text = match self.output {
            Output::Json => format!("{answer:#}\n"),
            Output::Table => table(answer),
        };
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // A reader that has seen enough, as `head`, is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Host and port, from what may be written as a URL or without a port.
fn address(written: &str) -> String {
    let bare = written.strip_prefix("http://").unwrap_or(written).trim_end_matches('/');
    let has_port = match bare.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    match bare.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{PORT}"),
        Err(_) if has_port => bare.into(),
        Err(_) => format!("{bare}:{PORT}"),
    }
}

async fn ask(address: &str, path: &str) -> Result<Value, AdminError> {
    let connect = |source| AdminError::Connect { address: address.into(), source };
    let odd = |problem: String| AdminError::Answer { address: address.into(), problem };
    let stream = TcpStream::connect(address).await.map_err(connect)?;
    // The address and not the name we were given: the admin port answers addresses without being told.
    let peer = stream.peer_addr().map_err(connect)?;
    let request = Request::get(path).header(HOST, peer.to_string()).body(Empty::<Bytes>::new());
    let request = request.map_err(|error| odd(error.to_string()))?;

    let exchange = async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let drive = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        Ok::<_, hyper::Error>((response, drive))
    };
    let (response, _drive) = exchange.await.map_err(|error| odd(error.to_string()))?;
    let status = response.status();
    let body = Limited::new(response.into_body(), LARGEST).collect().await;
    let body = body.map_err(|error| odd(error.to_string()))?.to_bytes();
    if status != StatusCode::OK {
        let told: String =
            String::from_utf8_lossy(&body).chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(odd(format!("{status}: {told}")));
    }
    serde_json::from_slice(&body).map_err(|error| odd(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (written, read) in [
            ("127.0.0.1:9000", "127.0.0.1:9000"),
            ("127.0.0.1", "127.0.0.1:10254"),
            ("localhost", "localhost:10254"),
            ("::1", "[::1]:10254"),
            ("[::1]:9000", "[::1]:9000"),
            ("http://localhost:9000/", "localhost:9000"),
        ] {
            assert_eq!(address(written), read);
        }
    }
}
