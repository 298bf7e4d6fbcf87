//! HTTP of the webhook: one path, POST, bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{Answer, Question};

/// Where API servers ask.
const PATH: &str = "/networking/v1/ingresses";
/// Bytes of a review: twice the largest object that etcd takes, since an update carries the old one too.
const LARGEST: usize = 3 << 20;
/// Time for everything from the head of a request to the verdict; less than the 10 s that API servers wait.
const DEADLINE: Duration = Duration::from_secs(5);

/// Answers one request; what is not answered with a review is for the failure policy of the API server.
pub(super) async fn answer(
    request: Request<Incoming>,
    questions: mpsc::Sender<Question>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return text(StatusCode::NOT_FOUND, format!("not found; there is {PATH}"));
    }
    if request.method() != Method::POST {
        let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "reviews are sent with POST");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return answer;
    }
    match timeout(DEADLINE, judge(request, questions)).await {
        Ok(answer) => answer,
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "there was no verdict within 5 s"),
    }
}

async fn judge(request: Request<Incoming>, questions: mpsc::Sender<Question>) -> Response<Full<Bytes>> {
    let body = match Limited::new(request.into_body(), LARGEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return text(StatusCode::PAYLOAD_TOO_LARGE, "the review is larger than 3 MiB");
        }
        Err(_) => return text(StatusCode::BAD_REQUEST, "the review did not arrive whole"),
    };
    let (answer, verdict) = oneshot::channel();
    if questions.try_send(Question { body, answer }).is_err() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many reviews at once");
    }
    match verdict.await {
        Ok(Answer::Review(review)) => {
            let mut answer = Response::new(Full::new(review.into()));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer
        }
        Ok(Answer::Malformed(error)) => text(StatusCode::BAD_REQUEST, error.to_string()),
        Ok(Answer::NotReady) | Err(_) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the gateway is not ready to judge")
        }
    }
}

fn text(status: StatusCode, message: impl Into<String>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new((message.into() + "\n").into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}
