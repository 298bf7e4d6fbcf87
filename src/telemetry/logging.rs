//! Portcullis' own log: lines on standard error, as text or JSON, whose level and format change at run time.
//!
//! `serve` starts it once; every part writes to it through `tracing`. No line is ever waited for: they go to a
//! writer thread, and what it cannot take in time is dropped. A line that repeats without end is let through
//! a few times and then counted, so that one broken client cannot fill a disk. Libraries log warnings at most:
//! what they call details can be header fields and keys.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt, reload};

use crate::settings::Settings;
use crate::settings::choices::{LogFormat, LogLevel};

/// Lines that may wait for the writer.
const WAITING: usize = 4096;
/// The target of lines that tell of many objects, one line each: [`MOST_IN_BULK`] of them at once are none too many.
pub const IN_BULK: &str = concat!(env!("CARGO_PKG_NAME"), "::in_bulk");
/// How many of these whoever writes them writes at once.
pub const MOST_IN_BULK: usize = 100;
/// One line of the code may write this often…
const BURST: u32 = 20;
/// …or this often, if its target is [`IN_BULK`]…
const BULK_BURST: u32 = MOST_IN_BULK as u32;
/// …within this time.
const WINDOW: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the last lines.
const FLUSH: Duration = Duration::from_secs(1);

type FormatLayer = Box<dyn Layer<Registry> + Send + Sync>;
type Lines = reload::Layer<FormatLayer, Registry>;

/// The running log. When it is dropped, what is still waiting is written.
pub struct Logging {
    level: Box<dyn Fn(Targets) + Send>,
    format: reload::Handle<FormatLayer, Registry>,
    out: Out,
}

/// The log was started twice in one process.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("the log has been started already")]
    Started,
    #[error("no thread for the log: {0}")]
    Thread(#[from] io::Error),
}

impl Logging {
    /// Writes to standard error from now on.
    ///
    /// # Errors
    /// Something else takes the lines of this process, or no thread could be started.
    pub fn start(settings: &Settings) -> Result<Self, LoggingError> {
        let (subscriber, logging) = Self::new(settings, io::stderr())?;
        tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Started)?;
        Ok(logging)
    }

    fn new(
        settings: &Settings,
        out: impl Write + Send + 'static,
    ) -> Result<(impl Subscriber + Send + Sync + 'static, Self), LoggingError> {
        let out = Out::start(out)?;
        let (lines, format): (Lines, _) = reload::Layer::new(format_layer(settings.log_format, &out));
        let (level, handle) = reload::Layer::new(targets(settings.log_level));
        let subscriber = Registry::default().with(lines).with(level).with(Repeats::default());
        let level = move |targets| {
            // Fails only when the subscriber has gone, and with it every line.
            let _ = handle.reload(targets);
        };
        Ok((subscriber, Self { level: Box::new(level), format, out }))
    }

    /// Goes on with the level and format of `settings`.
    pub fn set(&self, settings: &Settings) {
        (self.level)(targets(settings.log_level));
        let _ = self.format.reload(format_layer(settings.log_format, &self.out));
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.out.flush();
    }
}

fn targets(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new().with_default(level.min(LevelFilter::WARN)).with_target(env!("CARGO_PKG_NAME"), level)
}

fn format_layer(format: LogFormat, out: &Out) -> FormatLayer {
    match format {
        LogFormat::Text => fmt::layer().with_ansi(false).with_target(false).with_writer(out.clone()).boxed(),
        LogFormat::Json => {
            fmt::layer().json().flatten_event(true).with_target(false).with_writer(out.clone()).boxed()
        }
    }
}

/// Where lines go: to the writer thread.
#[derive(Clone)]
struct Out(SyncSender<Message>);

enum Message {
    Line(Vec<u8>),
    /// Answered once everything before it has been written.
    Flush(Sender<()>),
}

impl Out {
    fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::Builder::new().name("log".into()).spawn(move || write_all(&receiver, out))?;
        Ok(Self(sender))
    }

    fn flush(&self) {
        let (done, wait) = channel();
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(FLUSH);
        }
    }
}

fn write_all(receiver: &Receiver<Message>, mut out: impl Write) {
    while let Ok(message) = receiver.recv() {
        // Standard error may be closed; serving goes on without a log.
        let _ = match message {
            Message::Line(line) => out.write_all(&line),
            Message::Flush(done) => {
                let _ = done.send(());
                out.flush()
            }
        };
    }
}

impl MakeWriter<'_> for Out {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Write for Out {
    /// Called once for each line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // Full: dropped rather than waited for.
        let _ = self.0.try_send(Message::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lets each line of the code write [`BURST`] or [`BULK_BURST`] times in a [`WINDOW`].
#[derive(Default)]
struct Repeats(Mutex<HashMap<Identifier, Window>>);

struct Window {
    started: Instant,
    written: u32,
    held_back: u64,
}

impl Repeats {
    /// Whether a line is written, and how many of its kind were held back before.
    fn admit(&self, line: Identifier, burst: u32, now: Instant) -> (bool, u64) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(line).or_insert(Window { started: now, written: 0, held_back: 0 });
        if now.saturating_duration_since(window.started) >= WINDOW {
            let held_back = window.held_back;
            *window = Window { started: now, written: 1, held_back: 0 };
            return (true, held_back);
        }
        let admitted = window.written < burst;
        window.written += u32::from(admitted);
        window.held_back += u64::from(!admitted);
        (admitted, 0)
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let burst = if metadata.target() == IN_BULK { BULK_BURST } else { BURST };
        let (admitted, held_back) = self.admit(metadata.callsite(), burst, Instant::now());
        if held_back > 0 {
            let place = format_args!("{}:{}", metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
            tracing::warn!(held_back, %place, "lines like the next one were held back");
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `log` writes under these settings, which it may change.
    fn written(settings: &Settings, log: impl FnOnce(&Logging)) -> String {
        let sink = Sink::default();
        let (subscriber, logging) = Logging::new(settings, sink.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || log(&logging));
        drop(logging);
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn level_and_format_change_at_run_time() {
        let text = written(&Settings::default(), |logging| {
            tracing::debug!("too detailed");
            tracing::info!(port = 80, "first");
            let json =
                Settings { log_level: LogLevel::Debug, log_format: LogFormat::Json, ..Settings::default() };
            logging.set(&json);
            tracing::debug!(port = 443, "second");
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains(" INFO ") && lines[0].ends_with("first port=80"), "{text}");
        let json: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
        assert_eq!(
            (&json["level"], &json["message"], &json["port"]),
            (&"DEBUG".into(), &"second".into(), &443.into())
        );
    }

    #[test]
    fn libraries_keep_their_details_to_themselves() {
        let settings = Settings { log_level: LogLevel::Trace, ..Settings::default() };
        let text = written(&settings, |_| {
            tracing::trace!(target: "h2::codec", "authorization: Bearer abc");
            tracing::warn!(target: "h2::codec", "worth a line");
            tracing::trace!("own");
        });
        assert!(!text.contains("Bearer"), "{text}");
        assert!(text.contains("worth a line") && text.contains("own"), "{text}");
    }

    #[test]
    fn a_line_that_repeats_is_held_back() {
        let text = written(&Settings::default(), |_| {
            (0..1000).for_each(|client| tracing::warn!(client, "broken"));
            (0..1000).for_each(|object| tracing::warn!(target: IN_BULK, object, "finding"));
            tracing::warn!("another");
        });
        assert_eq!(text.matches("broken").count(), BURST as usize);
        assert_eq!(text.matches("finding").count(), MOST_IN_BULK);
        assert_eq!(text.matches("another").count(), 1);
    }

    #[test]
    fn what_was_held_back_is_told_with_the_next_line() {
        let metadata = tracing::callsite!(name: "x", kind: tracing::metadata::Kind::EVENT, fields: );
        let line = tracing::callsite::Callsite::metadata(metadata).callsite();
        let (repeats, start) = (Repeats::default(), Instant::now());
        for count in 0..30 {
            assert_eq!(repeats.admit(line.clone(), BURST, start), (count < BURST, 0));
        }
        assert_eq!(repeats.admit(line.clone(), BURST, start + WINDOW), (true, 10));
        assert_eq!(repeats.admit(line, BURST, start + WINDOW), (true, 0));
    }

    #[test]
    fn no_client_can_forge_a_line() {
        for log_format in [LogFormat::Text, LogFormat::Json] {
            let settings = Settings { log_format, ..Settings::default() };
            let text = written(&settings, |_| tracing::info!(path = "/a\nERROR forged\x1b[2J", "refused"));
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(!text.contains('\x1b'), "{text:?}");
        }
    }
}
