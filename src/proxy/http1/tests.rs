use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::net::drain::Drain;
use crate::proxy::answers;

/// Answers with what it was asked, and remembers it.
#[derive(Default)]
struct Echo {
    seen: RefCell<Vec<String>>,
    /// Answers without reading the body.
    early: bool,
    /// Keeps the body of an early answer, and reads on in it when the next request comes.
    keeping: bool,
    kept: RefCell<Option<Body>>,
}

impl Service for Echo {
    async fn call(&self, request: Request<Body>) -> Response<Body> {
        let line = format!("{} {}", request.method(), request.uri());
        self.seen.borrow_mut().push(line.clone());
        if let Some(kept) = self.kept.take() {
            let rest =
                kept.collect().await.map(|rest| String::from_utf8_lossy(&rest.to_bytes()).into_owned());
            let text = rest.unwrap_or_else(|error| error.to_string());
            return Response::new(Body::from(Bytes::from(text)));
        }
        if self.early {
            self.kept.replace(self.keeping.then(|| request.into_body()));
            return Response::new(Body::from(Bytes::from("early")));
        }
        match request.into_body().collect().await {
            Ok(body) => {
                let text = format!("{line} [{}]", String::from_utf8_lossy(&body.to_bytes()));
                Response::new(Body::from(Bytes::from(text)))
            }
            Err(error) => answers::plain(http::StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    fn refuse(&self, error: HeadError, _: Version) -> Response<Body> {
        answers::plain(error.status(), &error.to_string())
    }

    fn panicked(&self) {
        unreachable!("only streams of HTTP/2 have a task of their own")
    }

    fn limits(&self) -> Limits {
        Limits {
            head: HeadLimits { bytes: 4096, fields: 20 },
            header_timeout: Duration::from_millis(300),
            keep_alive: Duration::from_millis(300),
            body_timeout: Duration::from_millis(300),
        }
    }

    async fn upgraded(&self, _: ClientStream, _: BytesMut, _: Upgraded) {}
}

/// Sends `input` to a server, piece by piece, then reads until the server closes.
async fn talk(echo: Rc<Echo>, input: &[&str]) -> String {
    let drain = Drain::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let deadlines = Deadlines::new();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::select! {
            () = serve(ClientStream::Plain(stream), &*echo, &deadlines, drain.watch()) => {}
            () = deadlines.run(|| None) => {}
        }
    };
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        for piece in input {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    tokio::join!(server, client).1
}

fn statuses(answer: &str) -> Vec<&str> {
    answer.split("HTTP/1.1 ").skip(1).filter_map(|part| part.get(..3)).collect()
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_each_with_its_own_body() {
    let echo = Rc::new(Echo::default());
    let answer = talk(
        echo.clone(),
        &[
            "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\noneGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nth",
            "r\r\n2\r\nee\r\n0\r\n\r\nGET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        ],
    )
    .await;
    assert_eq!(statuses(&answer), ["200"; 4], "{answer}");
    for text in ["POST /1 [one]", "GET /2 []", "POST /3 [three]", "GET /4 []"] {
        assert!(answer.contains(text), "{text} in {answer}");
    }
    assert_eq!(answer.matches("connection: close").count(), 1);
}

#[tokio::test]
async fn a_body_nobody_read_is_never_the_next_request() {
    let echo = Rc::new(Echo { early: true, ..Echo::default() });
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = format!("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", smuggled.len());
    let next = "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = talk(echo.clone(), &[&request, smuggled, next]).await;
    assert_eq!(statuses(&answer), ["200", "200"], "{answer}");
    assert_eq!(*echo.seen.borrow(), ["POST /1", "GET /2"]);
}

#[tokio::test]
async fn whoever_keeps_a_body_reads_nothing_of_the_next_request() {
    let echo = Rc::new(Echo { early: true, keeping: true, ..Echo::default() });
    let first = "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n";
    let next = "POST /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\n";
    let answer = talk(echo, &[first, "rest", next, "secret"]).await;
    assert_eq!(statuses(&answer), ["200", "200"], "{answer}");
    assert!(answer.ends_with("the client closed the connection inside the body"), "{answer}");
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_it_when_the_body_is_wanted_and_only_then() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";
    let answer = talk(Rc::default(), &[head, "hi"]).await;
    assert_eq!(statuses(&answer), ["100", "200"], "{answer}");

    let echo = Rc::new(Echo { early: true, ..Echo::default() });
    let answer = talk(echo, &[head]).await;
    assert_eq!(statuses(&answer), ["200"], "{answer}");
    assert!(answer.contains("connection: close"));
}

#[tokio::test]
async fn what_cannot_be_understood_ends_the_connection() {
    for input in [
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    ] {
        let echo = Rc::new(Echo::default());
        let answer = talk(echo.clone(), &[input, "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"]).await;
        assert_eq!(statuses(&answer), ["400"], "{input:?}: {answer}");
        assert!(!echo.seen.borrow().iter().any(|line| line.contains("next")));
    }
}

#[tokio::test]
async fn slow_and_idle_clients_are_closed() {
    // Each ends by itself, since `talk` reads until the server closes.
    assert_eq!(talk(Rc::default(), &[]).await, "");
    assert_eq!(talk(Rc::default(), &["GET / HT"]).await, "");
    let idle = talk(Rc::default(), &["GET / HTTP/1.1\r\nHost: a\r\n\r\n"]).await;
    assert_eq!(statuses(&idle), ["200"]);
    let slow = talk(Rc::default(), &["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"]).await;
    assert_eq!(statuses(&slow), ["400"], "{slow}");
}

#[tokio::test]
async fn http_1_0_gets_no_chunks_and_no_second_request() {
    let answer = talk(Rc::default(), &["GET /old HTTP/1.0\r\n\r\nGET /next HTTP/1.0\r\n\r\n"]).await;
    assert_eq!(statuses(&answer), ["200"]);
    assert!(answer.ends_with("GET /old []"), "{answer}");
}
