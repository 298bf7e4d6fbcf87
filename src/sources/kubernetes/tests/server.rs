//! An HTTP server that answers by a script: just enough of HTTP/1.1 for one client.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// An answer.
pub struct Reply {
    status: u16,
    pieces: Vec<String>,
    after: Duration,
    /// A line of the head.
    header: Option<&'static str>,
    /// The answer goes on for ever, without another byte.
    open: bool,
}

impl Reply {
    pub fn json(status: u16, body: Value) -> Self {
        Self::stream([body.to_string()]).with_status(status)
    }

    /// An answer in pieces.
    pub fn stream<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(Into::into).collect();
        Self { status: 200, pieces, after: Duration::ZERO, header: None, open: false }
    }

    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }

    /// Waits before the first piece.
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    pub fn with_header(self, header: &'static str) -> Self {
        Self { header: Some(header), ..self }
    }

    pub fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }
}

/// From a path, and how often the like was asked for before, to an answer; by default lists are empty and
/// watches silent.
type Script = dyn Fn(&str, usize) -> Option<Reply>;

#[derive(Clone)]
pub struct Server {
    port: u16,
    script: Rc<Script>,
    asked: Rc<RefCell<HashMap<String, usize>>>,
}

impl Server {
    pub async fn start(script: impl Fn(&str, usize) -> Option<Reply> + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, script: Rc::new(script), asked: Rc::default() };
        let this = server.clone();
        tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = this.clone();
                tokio::task::spawn_local(async move { server.answer_all(stream).await });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until something like this was asked for.
    pub async fn wait_for(&self, part: &str) {
        while !self.asked.borrow().keys().any(|path| path.contains(part)) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn answer_all(&self, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                    break at + 4;
                }
                match stream.read_buf(&mut buffer).await {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            };
            let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            if self.answer(&mut stream, &path).await.is_err() {
                return;
            }
        }
    }

    async fn answer(&self, stream: &mut TcpStream, path: &str) -> std::io::Result<()> {
        let watch = path.contains("watch=1");
        let reply = (self.script)(path, self.count(path)).unwrap_or_else(|| match watch {
            true => Reply::stream([""]).open(),
            false => Reply::stream([r#"{"metadata":{"resourceVersion":"1"},"items":null}"#]),
        });
        let header = reply.header.map(|header| format!("{header}\r\n")).unwrap_or_default();
        let head = format!("HTTP/1.1 {} Reason\r\n{header}transfer-encoding: chunked\r\n\r\n", reply.status);
        stream.write_all(head.as_bytes()).await?;
        sleep(reply.after).await;
        for piece in reply.pieces.iter().filter(|piece| !piece.is_empty()) {
            stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
            stream.flush().await?;
            sleep(Duration::from_millis(5)).await;
        }
        if reply.open {
            std::future::pending::<()>().await;
        }
        stream.write_all(b"0\r\n\r\n").await
    }

    /// Counts requests for a kind, lists and watches apart; the pages of a list count once.
    fn count(&self, path: &str) -> usize {
        let (plural, query) = path.split_once('?').unwrap_or((path, ""));
        let watch = if query.contains("watch=1") { "?watch=1" } else { "?" };
        let named = if query.contains("metadata%2Ename") { "named" } else { "" };
        let mut asked = self.asked.borrow_mut();
        let count = asked.entry(format!("{plural}{watch}{named}")).or_default();
        if !query.contains("continue=") {
            *count += 1;
        }
        *count - 1
    }
}
