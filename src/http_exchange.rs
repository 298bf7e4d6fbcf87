//! One bounded HTTP/1.1 exchange over a connection that the caller has opened: one request, one answer, nothing more.
//!
//! `sources::ocsp` asks responders with it and `ca::authn` fetches key sets. Both ask strangers, so there are no
//! redirects, no cookies, no compression and no reuse of the connection, and no error repeats what the other side said.
//! Where to connect, and the time for all of it, is the caller's; dropping the future closes the connection.

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The largest head of an answer, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// Why an exchange brought no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    #[error("the exchange broke off or was not HTTP")]
    Http,
    #[error("HTTP status {0}")]
    Status(StatusCode),
    #[error("the body is encoded")]
    Encoded,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
}

/// Sends `request` and reads the body of the answer, which must have status 200 and at most `max_body` bytes.
pub async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_body: usize,
) -> Result<Bytes, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| ExchangeError::Http)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(|_| ExchangeError::Http)?;
        read_body(response, max_body).await
    };
    tokio::pin!(answer);
    // The connection moves the bytes; it is driven here rather than spawned, so that it ends with us.
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }
}

async fn read_body(response: Response<Incoming>, max_body: usize) -> Result<Bytes, ExchangeError> {
    if response.status() != StatusCode::OK {
        return Err(ExchangeError::Status(response.status()));
    }
    if response.headers().get_all(CONTENT_ENCODING).iter().any(|encoding| encoding != "identity") {
        return Err(ExchangeError::Encoded);
    }
    let body = response.into_body();
    if body.size_hint().lower() > max_body as u64 {
        return Err(ExchangeError::TooLarge(max_body));
    }
    match Limited::new(body, max_body).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ExchangeError::TooLarge(max_body)),
        Err(_) => Err(ExchangeError::Http),
    }
}
