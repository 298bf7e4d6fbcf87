//! The body of a response, read as the client takes it: slices of the read buffer, never copied.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::chunked::{ChunkDecoder, Decoded};
use super::exchange::{Exchange, Wait};
use crate::proxy::upstream::error::{Reason, UpstreamError};

type Item = Result<Decoded, UpstreamError>;

/// The rest of a response. Dropped before its end it closes the connection.
pub struct ResponseBody {
    /// Gone once the last byte was read, or after an error.
    exchange: Option<Box<Exchange>>,
    decoder: Decoder,
    keep_alive: bool,
    ahead: Option<Ahead>,
}

/// What came together with the last data that was delivered.
enum Ahead {
    Trailers(Box<HeaderMap>),
    Failure(UpstreamError),
}

pub enum Decoder {
    Length(u64),
    Chunked(ChunkDecoder),
    Close,
}

impl ResponseBody {
    pub fn new(exchange: Exchange, decoder: Decoder, keep_alive: bool) -> Self {
        Self { exchange: Some(Box::new(exchange)), decoder, keep_alive, ahead: None }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let item = match self.ahead.take() {
            Some(Ahead::Trailers(trailers)) => Ok(Decoded::End(Some(*trailers))),
            Some(Ahead::Failure(error)) => Err(error),
            None => match self.poll_item(cx) {
                Poll::Ready(Some(item)) => item,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(self.deliver(item))
    }

    /// Sends on what is left of the request while nobody takes the response.
    pub fn drive_upload(&mut self, cx: &mut Context<'_>) {
        if let Some(exchange) = &mut self.exchange
            && let Err(error) = exchange.drive_upload(cx)
        {
            self.ahead = Some(Ahead::Failure(error));
        }
    }

    /// Whether everything was delivered; with a known length that is so right after the last data.
    pub fn is_end_stream(&self) -> bool {
        self.exchange.is_none() && self.ahead.is_none()
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.decoder {
            Decoder::Length(left) => SizeHint::with_exact(left),
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            _ => SizeHint::default(),
        }
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        if let Err(error) = exchange.drive_upload(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            match self.decoder.decode(&mut exchange.connection.input) {
                Ok(None) => {}
                Ok(Some(decoded)) => return Poll::Ready(Some(Ok(decoded))),
                Err(reason) => return Poll::Ready(Some(Err(reason.into()))),
            }
            match exchange.connection.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    let complete = matches!(self.decoder, Decoder::Close);
                    let end =
                        if complete { Ok(Decoded::End(None)) } else { Err(Reason::BodyTruncated.into()) };
                    return Poll::Ready(Some(end));
                }
                Poll::Ready(Ok(_)) => exchange.pace.moved = true,
                Poll::Ready(Err(error)) => {
                    let error = UpstreamError::new(Reason::BodyTruncated).caused_by(error);
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Pending => return exchange.pace.poll(Wait::Read, cx).map(|late| Some(Err(late))),
            }
        }
    }

    fn deliver(&mut self, item: Item) -> Option<Result<Frame<Bytes>, UpstreamError>> {
        match item {
            Ok(Decoded::Data(data)) => {
                self.look_ahead();
                Some(Ok(Frame::data(data)))
            }
            Ok(Decoded::End(trailers)) => {
                self.finish();
                trailers.map(|trailers| Ok(Frame::trailers(trailers)))
            }
            Err(error) => {
                self.exchange = None;
                Some(Err(error))
            }
        }
    }

    /// Finds the end if it is here already, so that the connection is free before the data is consumed.
    fn look_ahead(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        match &mut self.decoder {
            Decoder::Length(0) => self.finish(),
            Decoder::Chunked(decoder) => match decoder.decode_end(&mut exchange.connection.input) {
                Ok(None) => {}
                Ok(Some(trailers)) => {
                    self.finish();
                    self.ahead = trailers.map(|trailers| Ahead::Trailers(Box::new(trailers)));
                }
                Err(reason) => self.ahead = Some(Ahead::Failure(reason.into())),
            },
            Decoder::Length(_) | Decoder::Close => {}
        }
    }

    fn finish(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            exchange.finish(self.keep_alive);
        }
    }
}

impl Decoder {
    fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Decoded>, Reason> {
        match self {
            Self::Chunked(decoder) => decoder.decode(input),
            _ if input.is_empty() => Ok(None),
            Self::Close => Ok(Some(Decoded::Data(input.split().freeze()))),
            Self::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= length as u64;
                Ok(Some(Decoded::Data(input.split_to(length).freeze())))
            }
        }
    }
}
