//! One request and its response on a connection: writes, reads and watches the clock, all in the task of the
//! caller. With the last byte of the response the connection goes back to the pool, if it may.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, StatusCode};

use super::Connection;
use super::response::{HeadReader, ResponseHead};
use super::upload::{State, Upload};
use crate::net::deadlines::Deadline;
use crate::proxy::upstream::error::{Reason, Retry, UpstreamError};
use crate::proxy::upstream::pool::Stack;

/// More interim responses than this is a storm.
pub const MAX_INTERIM: u32 = 16;

pub struct Exchange {
    pub connection: Box<Connection>,
    pub upload: Upload,
    pub pace: Pace,
    pub home: Rc<Stack>,
    /// Why the request could not be written to its end. The response is still read: a backend that refuses a
    /// body says why before it closes.
    pub send_error: Option<UpstreamError>,
}

impl Exchange {
    /// Waits for the head of the final response (or a 101), skipping interim ones.
    pub fn poll_head(
        &mut self,
        reader: &mut HeadReader,
        interim: &mut u32,
        method: &Method,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, UpstreamError>> {
        self.drive_upload(cx)?;
        loop {
            while !self.connection.input.is_empty() {
                let Some(head) = reader.read(&mut self.connection.input, method)? else { break };
                if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                    return Poll::Ready(Ok(head));
                }
                *interim += 1;
                if *interim > MAX_INTERIM {
                    return Poll::Ready(Err(Reason::InvalidResponse("too many interim responses").into()));
                }
            }
            match self.connection.poll_read(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.closed(*interim, None))),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.closed(*interim, Some(error)))),
                Poll::Ready(Ok(_)) => self.pace.moved = true,
                Poll::Pending => break,
            }
        }
        let wait = match self.upload.state() {
            State::Client => Wait::Client,
            State::Backend => Wait::Send,
            State::Done | State::Failed => Wait::Read,
        };
        self.pace.poll(wait, cx).map(Err)
    }

    /// Sends on while a response is awaited or read. Only what the client did wrong ends the exchange here.
    pub fn drive_upload(&mut self, cx: &mut Context<'_>) -> Result<(), UpstreamError> {
        let before = self.connection.output.sent;
        let Connection { output, stream, .. } = &mut *self.connection;
        if let Poll::Ready(Err(error)) = self.upload.poll(output, stream, cx) {
            if error.reason == Reason::ClientBody {
                return Err(error);
            }
            self.send_error = Some(error);
        }
        self.pace.moved |= self.connection.output.sent != before;
        Ok(())
    }

    /// The connection ended before a response did.
    fn closed(&mut self, interim: u32, cause: Option<io::Error>) -> UpstreamError {
        let nothing_came = interim == 0 && self.connection.input.is_empty();
        if let Some(error) = self.send_error.take() {
            return if nothing_came { error } else { error.retry(Retry::Never) };
        }
        let retry = if nothing_came { Retry::IfIdempotent } else { Retry::Never };
        let error = UpstreamError::new(Reason::Closed).retry(retry);
        match cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }

    /// Ends the exchange after the last byte of the response. Whatever follows it was not asked for and would be
    /// taken for the next response, so the connection is kept only when it is at rest in both directions.
    pub fn finish(self, keep_alive: bool) {
        let at_rest = self.upload.state() == State::Done && self.connection.input.is_empty();
        if keep_alive && at_rest {
            let mut connection = self.connection;
            connection.rest();
            self.home.put(connection);
        }
    }
}

impl Connection {
    /// Reads what has arrived into the buffer; 0 is the end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        use tokio::io::AsyncReadExt;
        if self.input.capacity() - self.input.len() < self.read_size / 4 {
            self.input.reserve(self.read_size);
        }
        let room = self.input.capacity() - self.input.len();
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        if let Poll::Ready(Ok(read)) = read
            && read >= room
        {
            self.read_size = (self.read_size * 2).min(super::MAX_READ);
        }
        read
    }
}

/// What an exchange waits for, and so which timeout is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The client sends its body at its own pace; the timeouts towards clients watch it.
    Client,
    Send,
    Read,
}

/// The clock of an exchange: it runs from the last progress.
pub struct Pace {
    deadline: Deadline,
    wait: Wait,
    send: Duration,
    read: Duration,
    /// Something was read or written since the last look.
    pub moved: bool,
}

impl Pace {
    pub fn new(deadline: Deadline, send: Duration, read: Duration) -> Self {
        Self { deadline, wait: Wait::Client, send, read, moved: true }
    }

    /// Ready when waiting for `wait` has taken too long.
    pub fn poll(&mut self, wait: Wait, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        let (limit, reason) = match wait {
            Wait::Client => {
                self.wait = wait;
                return Poll::Pending;
            }
            Wait::Send => (self.send, Reason::SendTimeout),
            Wait::Read => (self.read, Reason::ReadTimeout),
        };
        if self.moved || self.wait != wait {
            self.moved = false;
            self.wait = wait;
            self.deadline.reset(limit);
        }
        self.deadline.poll_passed(cx).map(|()| reason.into())
    }
}
