//! Streams one by one: who gives one up, what is left of it, and who is not hurt by it.

use std::future::poll_fn;
use std::task::Poll;

use h2::server::SendResponse;
use tokio::sync::{Notify, mpsc};

use super::super::super::{PoolLimits, Upstream};
use super::super::connection::STREAM_WINDOW;
use super::*;
use crate::snapshot::hosts::RoutePolicy;
use crate::testing::eventually_async;
use crate::testing::grpc::send as send_all;
use crate::tls::client::ClientTls;

/// Serves each stream of an HTTP/2 connection by `handle`.
async fn each_stream<F: Future<Output = ()> + 'static>(
    stream: TcpStream,
    settings: h2::server::Builder,
    handle: impl Fn(Request<h2::RecvStream>, SendResponse<Bytes>) -> F,
) {
    let mut connection = settings.handshake(stream).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        spawn_local(handle(request, respond));
    }
}

/// Begins an answer, reads nothing of the request, and tells how the client ended it.
async fn begin_and_wait(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    ends: mpsc::UnboundedSender<Option<h2::Reason>>,
) {
    let mut answer = respond.send_response(Response::new(()), false).unwrap();
    answer.send_data("part".into(), false).unwrap();
    let reason = poll_fn(|cx| answer.poll_reset(cx)).await;
    drop(request);
    let _ = ends.send(reason.ok());
}

#[tokio::test(flavor = "local")]
async fn a_response_given_up_resets_its_stream_and_frees_its_place() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let ends = ends.clone();
        let settings = h2::server::Builder::new().max_concurrent_streams(3).clone();
        each_stream(stream, settings, move |request, respond| begin_and_wait(request, respond, ends.clone()))
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    // More than the backend has room for, so that the upload waits.
    let upload = || request(Method::POST, vec![b'x'; 1_000_000]);
    for _ in 0..10 {
        let mut body = upstream.forward_plainly(&cluster, &policy, upload()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "part");
        drop(body);
        assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
    }
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn a_request_given_up_before_its_answer_resets_its_stream() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let ends = ends.clone();
            async move {
                let _ = ends.send(None);
                let reason = poll_fn(|cx| respond.poll_reset(cx)).await;
                drop(request);
                let _ = ends.send(reason.ok());
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let upload = request(Method::POST, vec![b'x'; 1_000_000]);
    tokio::select! {
        _ = upstream.forward_plainly(&cluster, &policy, upload) => panic!("nobody answers"),
        seen = ended.recv() => assert_eq!(seen, Some(None)),
    }
    assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
}

#[tokio::test(flavor = "local")]
async fn an_answer_before_the_end_of_the_request_ends_the_upload() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let ends = ends.clone();
            async move {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                answer.send_data("early".into(), true).unwrap();
                let mut body = request.into_body();
                let mut received = 0;
                let error = loop {
                    match body.data().await {
                        Some(Ok(data)) => received += data.len(),
                        Some(Err(error)) => break error.reason(),
                        None => break None,
                    }
                };
                let _ = ends.send((received, error));
            }
        })
    });
    let gateway = gateway(address.await, BackendProtocol::H2c, Deadlines::new()).await;
    let mut client = TcpStream::connect(gateway).await.unwrap();
    client.write_all(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 70000\r\n\r\n").await.unwrap();
    client.write_all(&[b'1'; 66_000]).await.unwrap();
    read_head(&mut client).await.unwrap();
    let (received, error) = ended.recv().await.unwrap();
    assert!(received <= 66_000 && error == Some(h2::Reason::CANCEL), "{received} {error:?}");
}

#[tokio::test(flavor = "local")]
async fn a_client_that_breaks_off_is_no_end_of_the_request() {
    let (ends, mut ended) = mpsc::unbounded_channel();
    let address = backend(move |_, stream| {
        let ends = ends.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, respond| {
            let ends = ends.clone();
            async move {
                let mut body = request.into_body();
                assert_eq!(body.data().await.unwrap().unwrap(), "abc");
                let _ = ends.send(None);
                let _ = ends.send(body.data().await.and_then(|data| data.err()?.reason()));
                drop(respond);
            }
        })
    });
    let gateway = gateway(address.await, BackendProtocol::H2c, Deadlines::new()).await;
    let mut client = TcpStream::connect(gateway).await.unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        .await
        .unwrap();
    assert_eq!(ended.recv().await, Some(None));
    drop(client);
    assert_eq!(ended.recv().await, Some(Some(h2::Reason::CANCEL)));
}

#[tokio::test(flavor = "local")]
async fn clients_that_take_nothing_stop_nobody() {
    let sent = Rc::new(Cell::new(0));
    let progress = sent.clone();
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let progress = progress.clone();
        each_stream(stream, h2::server::Builder::new(), move |request, mut respond| {
            let progress = progress.clone();
            async move {
                let mut answer = respond.send_response(Response::new(()), false).unwrap();
                if request.method() == Method::POST {
                    return answer.send_data("answer".into(), true).unwrap();
                }
                while send_all(&mut answer, vec![b'x'; 16 * 1024].into()).await.is_ok() {
                    progress.set(progress.get() + 16 * 1024);
                }
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let mut unread = Vec::new();
    for _ in 1..MAX_STREAMS {
        let get = request(Method::GET, "");
        unread.push(upstream.forward_plainly(&cluster, &policy, get).await.unwrap());
    }
    let all = unread.len() * STREAM_WINDOW as usize;
    eventually_async("every window is full", || sent.get() == all).await;
    let answer = upstream.forward_plainly(&cluster, &policy, request(Method::POST, "x")).await.unwrap();
    assert_eq!(collect(answer).await.unwrap().0, "answer");
    assert_eq!(connections.get(), 1);
}

#[tokio::test(flavor = "local")]
async fn small_pieces_are_gathered_while_the_client_takes_nothing() {
    let address = backend(move |_, stream| {
        each_stream(stream, h2::server::Builder::new(), |_, mut respond| async move {
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            for _ in 0..1000 {
                send_all(&mut answer, "0123456789".into()).await.unwrap();
            }
            answer.send_trailers(HeaderMap::new()).unwrap();
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let answer = upstream.forward_plainly(&cluster, &policy, request(Method::GET, "")).await.unwrap();
    let Body::BackendHttp2(mut body) = answer.into_body() else { panic!("no body") };
    poll_fn(|cx| {
        body.drive_upload(cx);
        match body.gathered.len() {
            10_000 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    })
    .await;
    let whole = poll_fn(|cx| body.poll_frame(cx)).await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(whole, "0123456789".repeat(1000));
}

#[tokio::test(flavor = "local")]
async fn a_backend_gets_no_more_streams_than_it_takes() {
    let all_here = Rc::new(Barrier::new(5));
    let connections = Rc::new(Cell::new(0));
    let count = connections.clone();
    let address = backend(move |number, stream| {
        count.set(number);
        let all_here = all_here.clone();
        let settings = h2::server::Builder::new().max_concurrent_streams(2).clone();
        each_stream(stream, settings, move |_, mut respond| {
            let all_here = all_here.clone();
            async move {
                all_here.wait().await;
                respond.send_response(Response::new(()), true).unwrap();
            }
        })
    });
    let (upstream, cluster, policy) = (upstream(), cluster(&[address.await]), policy(BackendProtocol::H2c));
    let requests = (0..5).map(|_| upstream.forward_plainly(&cluster, &policy, post("")));
    assert!(join_all(requests).await.iter().all(Result::is_ok));
    assert_eq!(connections.get(), 3);
}

#[tokio::test(flavor = "local")]
async fn trailers_of_responses_pass_without_the_forbidden() {
    let address = backend(|_, stream| {
        each_stream(stream, h2::server::Builder::new(), |_, mut respond| async move {
            let mut answer = respond.send_response(Response::new(()), false).unwrap();
            let field = |name: &str, value: &str| {
                (header::HeaderName::try_from(name).unwrap(), value.parse::<header::HeaderValue>().unwrap())
            };
            let trailers =
                [field("grpc-status", "0"), field("set-cookie", "a"), field("x-forwarded-for", "evil")];
            answer.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
        })
    });
    let policy = policy(BackendProtocol::H2c);
    let answer = upstream().forward_plainly(&cluster(&[address.await]), &policy, post("")).await.unwrap();
    let trailers = collect(answer).await.unwrap().1.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()));
}

const NO_SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Reads frames until one that opens a stream.
async fn until_headers(stream: &mut TcpStream) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if head[3] == 1 {
            return;
        }
    }
}

#[tokio::test(flavor = "local")]
async fn what_a_backend_that_goes_away_has_not_looked_at_is_sent_again() {
    let address = backend(|number, mut stream| async move {
        if number > 1 {
            return serve(stream, grpc).await;
        }
        stream.write_all(&NO_SETTINGS).await.unwrap();
        until_headers(&mut stream).await;
        // GOAWAY, and the last stream that was looked at is number 0.
        stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let policy = policy(BackendProtocol::H2c);
    let answer =
        upstream().forward_plainly(&cluster(&[address.await]), &policy, post("again")).await.unwrap();
    assert_eq!(collect(answer).await.unwrap().0, "again");
}

#[tokio::test(flavor = "local")]
async fn interim_responses_are_passed_over_but_not_without_end() {
    for (interim, outcome) in [(3, None), (100, Some(Reason::InvalidResponse("too many interim responses")))]
    {
        let address = backend(move |_, stream| {
            each_stream(stream, h2::server::Builder::new(), move |_, mut respond| async move {
                for _ in 0..interim {
                    let hints = Response::builder().status(103).body(()).unwrap();
                    respond.send_informational(hints).unwrap();
                }
                let _ = respond.send_response(Response::new(()), true);
            })
        });
        let policy = policy(BackendProtocol::H2c);
        let answer = upstream().forward_plainly(&cluster(&[address.await]), &policy, post("")).await;
        assert_eq!(answer.err().map(|error| error.reason), outcome);
    }
}

#[tokio::test(flavor = "local")]
async fn a_backend_that_is_silent_is_asked_whether_it_is_there() {
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let patient = RoutePolicy { read_timeout: Duration::from_secs(36_000), ..policy(BackendProtocol::H2c) };
    // It takes the request and answers nothing any more, not even a ping.
    let gone = backend(|_, mut stream| async move {
        stream.write_all(&NO_SETTINGS).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let gone = cluster(&[gone.await]);
    let asked = upstream.forward_plainly(&gone, &patient, post(""));
    let (answer, ()) = tokio::join!(asked, wait(&deadlines, 3));
    assert_eq!(answer.err().map(|error| error.reason), Some(Reason::Http2));
    // It only takes its time.
    let go = Rc::new(Notify::new());
    let ready = go.clone();
    let slow = backend(move |_, stream| {
        let ready = ready.clone();
        each_stream(stream, h2::server::Builder::new(), move |_, mut respond| {
            let ready = ready.clone();
            async move {
                ready.notified().await;
                respond.send_response(Response::new(()), true).unwrap();
            }
        })
    });
    let slow = cluster(&[slow.await]);
    let asked = upstream.forward_plainly(&slow, &patient, post(""));
    let waited = async {
        wait(&deadlines, 10).await;
        go.notify_one();
    };
    assert!(tokio::join!(asked, waited).0.is_ok());
}

/// Takes requests and never answers one; counts the pings, which it does answer.
async fn take_and_pong(mut stream: TcpStream, pings: Rc<Cell<usize>>) {
    stream.write_all(&NO_SETTINGS).await.unwrap();
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        if (head[3], head[4]) == (6, 0) {
            pings.set(pings.get() + 1);
            head[4] = 1;
            stream.write_all(&[&head[..], &payload].concat()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "local")]
async fn a_backend_that_stays_silent_is_asked_no_more_than_once_in_five_minutes() {
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let patient = RoutePolicy { read_timeout: Duration::from_secs(36_000), ..policy(BackendProtocol::H2c) };
    let pings = Rc::new(Cell::new(0));
    let count = pings.clone();
    let silent = cluster(&[backend(move |_, stream| take_and_pong(stream, count.clone())).await]);
    let asked = upstream.forward_plainly(&silent, &patient, post(""));
    tokio::select! {
        answer = asked => panic!("{:?}", answer.err().map(|error| error.reason)),
        () = wait(&deadlines, 16) => {}
    }
    // After half a minute and then each five: gRPC servers take more for abuse and close the connection.
    assert_eq!(pings.get(), 3);
}

#[tokio::test(flavor = "local")]
async fn nobody_waits_on_a_connection_on_which_another_waited_in_vain() {
    let deadlines = Deadlines::new();
    let upstream = Upstream::new(PoolLimits::default(), ClientTls::unverified(), deadlines.clone());
    let address = backend(|number, stream| async move {
        match number {
            1 => take_and_pong(stream, Rc::default()).await,
            _ => {
                each_stream(stream, h2::server::Builder::new(), |_, mut respond| async move {
                    respond.send_response(Response::new(()), true).unwrap();
                })
                .await;
            }
        }
    });
    let (cluster, policy) = (cluster(&[address.await]), policy(BackendProtocol::H2c));
    let asked = upstream.forward_plainly(&cluster, &policy, post(""));
    let (answer, ()) = tokio::join!(asked, wait(&deadlines, 2));
    assert_eq!(answer.err().map(|error| error.reason), Some(Reason::ReadTimeout));
    assert!(upstream.forward_plainly(&cluster, &policy, post("")).await.is_ok());
}
