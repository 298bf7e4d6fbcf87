//! The access log: a line for each request, off the request path.
//!
//! A worker formats lines into a buffer of its own and hands whole buffers to one writer thread. When the
//! writer cannot keep up, buffers are dropped and their lines counted; no request ever waits for a log.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use http::{Method, StatusCode, Version};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::settings::choices::LogFormat;

/// A buffer goes to the writer when it holds this much, or at the next tick of its worker.
const BUFFER: usize = 32 * 1024;
/// Buffers that may wait for the writer, over all workers.
const WAITING: usize = 256;

/// Microseconds, as the own log has them.
const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");

/// One request. `docs/admin.md` lists the fields.
#[derive(Serialize)]
pub struct Entry<'a> {
    pub client: IpAddr,
    #[serde(serialize_with = "display")]
    pub method: &'a Method,
    /// As the client asked for it.
    pub host: &'a str,
    pub path: &'a str,
    #[serde(serialize_with = "debug")]
    pub protocol: Version,
    pub tls: bool,
    #[serde(serialize_with = "status")]
    pub status: StatusCode,
    pub bytes: u64,
    #[serde(serialize_with = "seconds")]
    pub duration: Duration,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub ingress: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub upstream: &'a str,
    pub request_id: &'a str,
    /// Why the answer is one of our own, where it is, or why it ended before it was whole.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'a str,
    /// Who the client is in the mesh, by its verified certificate.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub source_principal: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub destination_principal: &'a str,
    /// The policy that decided, where one did.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub policy: &'a str,
    pub user_agent: &'a str,
}

/// How long the end of the process waits for a writer whose reader has stopped.
const LAST_LINES: Duration = Duration::from_secs(1);

/// What the writer is told.
enum Order {
    Write(Vec<u8>),
    /// To say that all that came before is written.
    Report(SyncSender<()>),
}

/// The side of a worker. What it has when it is dropped is handed over.
pub struct AccessLog {
    sender: SyncSender<Order>,
    buffer: RefCell<Vec<u8>>,
    lines: Cell<u64>,
    dropped: Arc<AtomicU64>,
    now: RefCell<String>,
}

/// The writer and what workers are made from.
pub struct AccessLogs {
    sender: SyncSender<Order>,
    dropped: Arc<AtomicU64>,
}

impl AccessLogs {
    /// Starts the writer thread, which ends when the last worker has gone.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(out: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::Builder::new().name("access-log".into()).spawn(move || write_all(&receiver, out))?;
        Ok(Self { sender, dropped: Arc::default() })
    }

    pub fn for_worker(&self) -> AccessLog {
        AccessLog {
            sender: self.sender.clone(),
            buffer: RefCell::default(),
            lines: Cell::new(0),
            dropped: self.dropped.clone(),
            now: RefCell::default(),
        }
    }

    /// Waits until everything that was handed over is written: the process ends, and the writer with it.
    pub fn finish(&self) {
        let (written, report) = sync_channel(1);
        let end = Instant::now() + LAST_LINES;
        let mut order = Order::Report(written);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(order) {
            if Instant::now() >= end {
                return;
            }
            order = back;
            std::thread::sleep(LAST_LINES / 100);
        }
        // Either way there is nothing more to wait for.
        let _ = report.recv_timeout(LAST_LINES);
    }

    /// Lines that were dropped because the writer could not keep up.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AccessLog {
    pub fn write(&self, entry: &Entry<'_>, format: LogFormat) {
        let mut now = self.now.borrow_mut();
        if now.is_empty() {
            *now = OffsetDateTime::now_utc().format(TIME).unwrap_or_default();
        }
        let mut buffer = self.buffer.borrow_mut();
        // Writing into a vector cannot fail.
        let _ = match format {
            LogFormat::Text => write_text(&mut buffer, &now, entry),
            LogFormat::Json => write_json(&mut buffer, &now, entry),
        };
        self.lines.set(self.lines.get() + 1);
        if buffer.len() >= BUFFER {
            drop((buffer, now));
            self.flush();
        }
    }

    /// Hands over what has gathered; called at each tick of the worker, which is also when its clock moves on.
    pub fn flush(&self) {
        self.now.borrow_mut().clear();
        let lines = self.lines.take();
        if lines == 0 {
            return;
        }
        let full = std::mem::take(&mut *self.buffer.borrow_mut());
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.sender.try_send(Order::Write(full))
        {
            self.dropped.fetch_add(lines, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.flush();
    }
}

fn write_all(receiver: &Receiver<Order>, mut out: impl Write) {
    while let Ok(order) = receiver.recv() {
        match order {
            // Standard output may be closed; serving goes on without a log.
            Order::Write(buffer) => _ = out.write_all(&buffer).and_then(|()| out.flush()),
            Order::Report(written) => _ = written.send(()),
        }
    }
}

fn write_text(out: &mut Vec<u8>, now: &str, entry: &Entry<'_>) -> std::io::Result<()> {
    let Entry { client, method, host, path, protocol, status, bytes, .. } = entry;
    let scheme = if entry.tls { "https" } else { "http" };
    let target = (host.escape_default(), Escaped(path));
    write!(out, "{now} {client} \"{method} {scheme}://{}{} {protocol:?}\"", target.0, target.1)?;
    let milliseconds = entry.duration.as_secs_f64() * 1e3;
    write!(out, " {} {bytes} {milliseconds:.3}ms", status.as_u16())?;
    for (name, value) in [
        ("ingress", entry.ingress),
        ("upstream", entry.upstream),
        ("reason", entry.reason),
        ("source", entry.source_principal),
        ("destination", entry.destination_principal),
        ("policy", entry.policy),
        ("id", entry.request_id),
    ] {
        if !value.is_empty() {
            write!(out, " {name}={}", Escaped(value))?;
        }
    }
    if !entry.user_agent.is_empty() {
        write!(out, " \"{}\"", Escaped(entry.user_agent))?;
    }
    writeln!(out)
}

fn write_json(out: &mut Vec<u8>, now: &str, entry: &Entry<'_>) -> std::io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        timestamp: &'a str,
        level: &'static str,
        #[serde(flatten)]
        entry: &'a Entry<'a>,
    }
    serde_json::to_writer(&mut *out, &Line { timestamp: now, level: "INFO", entry })?;
    out.push(b'\n');
    Ok(())
}

/// Text whose quotes, backslashes and control characters cannot break a line or a terminal.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in self.0.split_inclusive(|c: char| c.is_control() || c == '"' || c == '\\') {
            let mut rest = part.chars();
            match rest.next_back() {
                Some(last) if last.is_control() || last == '"' || last == '\\' => {
                    write!(f, "{}{}", rest.as_str(), last.escape_default())?;
                }
                _ => f.write_str(part)?,
            }
        }
        Ok(())
    }
}

fn display<S: serde::Serializer>(method: &&Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(method)
}

fn debug<S: serde::Serializer>(version: &Version, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{version:?}"))
}

fn status<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    const HOSTILE: &str = "/a\r\n127.0.0.1 \"GET /forged\x1b[2J";

    fn entry() -> Entry<'static> {
        Entry {
            client: IpAddr::from([192, 0, 2, 1]),
            method: &Method::GET,
            host: "example.com",
            path: HOSTILE,
            protocol: Version::HTTP_2,
            tls: true,
            status: StatusCode::NOT_FOUND,
            bytes: 12,
            duration: Duration::from_micros(1500),
            ingress: "shop/web",
            upstream: "",
            request_id: "0a",
            reason: "no_route",
            source_principal: "",
            destination_principal: "",
            policy: "",
            user_agent: "curl \"x\"",
        }
    }

    fn lines(format: LogFormat) -> String {
        let mut out = Vec::new();
        match format {
            LogFormat::Text => write_text(&mut out, "now", &entry()).unwrap(),
            LogFormat::Json => write_json(&mut out, "now", &entry()).unwrap(),
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_client_can_forge_a_line() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let line = lines(format);
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert!(!line.contains(['\r', '\x1b']), "{line}");
        }
        assert!(lines(LogFormat::Text).contains("404 12 1.500ms ingress=shop/web reason=no_route id=0a"));
        let json: serde_json::Value = serde_json::from_str(&lines(LogFormat::Json)).unwrap();
        assert_eq!(json["path"], HOSTILE);
        assert_eq!(json["timestamp"], "now");
        assert_eq!(
            (&json["status"], &json["level"], &json["duration"]),
            (&404.into(), &"INFO".into(), &0.0015.into())
        );
    }

    #[test]
    fn what_is_empty_is_left_out_of_text() {
        let mut out = Vec::new();
        let entry = Entry { path: "/", ingress: "", reason: "", user_agent: "", ..entry() };
        write_text(&mut out, "now", &entry).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(line, "now 192.0.2.1 \"GET https://example.com/ HTTP/2.0\" 404 12 1.500ms id=0a\n");
    }

    #[test]
    fn times_have_as_many_digits_as_those_of_the_own_log() {
        let time = |nanoseconds| {
            let time = OffsetDateTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
            time.format(TIME).unwrap()
        };
        assert_eq!(time(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(time(1_120_000_999), "1970-01-01T00:00:01.120000Z");
    }

    #[test]
    fn lines_reach_the_writer_at_a_tick() {
        let sink = Sink::default();
        let logs = AccessLogs::start(sink.clone()).unwrap();
        let log = logs.for_worker();
        log.write(&entry(), LogFormat::Text);
        log.flush();
        drop((log, logs));
        while sink.0.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(sink.0.lock().unwrap().ends_with(b"\"\n"));
    }

    #[test]
    fn the_last_lines_are_written_before_the_end() {
        let sink = Sink::default();
        let logs = AccessLogs::start(sink.clone()).unwrap();
        let log = logs.for_worker();
        log.write(&entry(), LogFormat::Text);
        drop(log);
        logs.finish();
        assert!(sink.0.lock().unwrap().ends_with(b"\"\n"));
        // A reader that has stopped is not waited for.
        let (sender, _stuck) = sync_channel(0);
        AccessLogs { sender, dropped: Arc::default() }.finish();
    }

    #[test]
    fn lines_that_cannot_be_handed_over_are_counted() {
        let (sender, _stuck) = sync_channel(0);
        let logs = AccessLogs { sender, dropped: Arc::default() };
        let log = logs.for_worker();
        log.write(&entry(), LogFormat::Json);
        log.write(&entry(), LogFormat::Json);
        log.flush();
        assert_eq!(logs.dropped(), 2);
    }
}
