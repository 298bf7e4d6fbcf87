//! `openssl s_client`, a TLS client that keeps its session in a file: for tests that resume elsewhere.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// How a handshake went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The server sent its certificate.
    Full,
    /// Client and server went on with the session that the client had.
    Resumed,
}

/// One request to `host` at `address`, over `version` (`tls1_2` or `tls1_3`). Resumes the session in `from`, and
/// leaves the session it got in `to`.
///
/// # Errors
/// There was no handshake, or no answer: what openssl printed.
pub fn connect(
    address: SocketAddr,
    host: &str,
    version: &str,
    from: Option<&Path>,
    to: &Path,
) -> Result<Handshake, String> {
    let mut command = Command::new("openssl");
    command.arg("s_client").args(["-connect", &address.to_string(), "-servername", host]);
    command.arg(format!("-{version}")).arg("-ign_eof").arg("-sess_out").arg(to);
    if let Some(from) = from {
        command.arg("-sess_in").arg(from);
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("openssl: {error}"))?;
    let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    if let Some(mut input) = child.stdin.take() {
        // Where openssl has given up already, what it prints says more than the error here.
        let _ = input.write_all(request.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let handshake = match (text.contains("\nReused, TLSv1"), text.contains("\nNew, TLSv1")) {
        (true, false) => Handshake::Resumed,
        (false, true) => Handshake::Full,
        _ => return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    };
    match text.contains("HTTP/1.1 ") {
        true => Ok(handshake),
        false => Err(format!("no answer: {text}")),
    }
}
