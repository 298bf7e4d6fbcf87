//! The task on a bench: injected clock, dice and responder, and a CA whose leaves it asks about.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::super::fetch::{FetchError, Order};
use super::super::*;
use crate::http_exchange::ExchangeError;
use crate::tls::ocsp::request::Request;
use crate::tls::ocsp::status::{OcspState, OcspStatus};
use crate::tls::ocsp::testing::{Answer, Ca, Issued};

/// What the bench's wall clock shows when a test begins.
pub const NOW: u64 = 1_800_000_000;

pub type Answerer = Box<dyn Fn(Order) -> BoxFuture<'static, Result<Bytes, FetchError>> + Send + Sync>;

/// A responder without a network, which writes down when it was asked what.
pub struct FakeFetch {
    pub begun: Instant,
    pub answer: Answerer,
    pub asked: Mutex<Vec<Asked>>,
    pub busy: Mutex<HashMap<String, usize>>,
    pub busiest: AtomicUsize,
    pub busiest_responder: AtomicUsize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Seconds since the test began.
    pub at: u64,
    pub origin: String,
    pub post: bool,
}

impl FakeFetch {
    pub fn new(answer: Answerer) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            answer,
            asked: Mutex::default(),
            busy: Mutex::default(),
            busiest: AtomicUsize::new(0),
            busiest_responder: AtomicUsize::new(0),
        })
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub fn times(&self) -> Vec<u64> {
        self.asked().iter().map(|asked| asked.at).collect()
    }
}

pub struct FetchOf(Arc<FakeFetch>);

impl Fetch for FetchOf {
    fn fetch(&self, order: Order) -> BoxFuture<'static, Result<Bytes, FetchError>> {
        let fake = self.0.clone();
        Box::pin(async move {
            let origin = order.target.origin();
            let at = fake.begun.elapsed().as_secs();
            fake.asked.lock().unwrap().push(Asked { at, origin: origin.clone(), post: order.post });
            {
                let mut busy = fake.busy.lock().unwrap();
                *busy.entry(origin.clone()).or_default() += 1;
                fake.busiest_responder.fetch_max(busy[&origin], Ordering::SeqCst);
                fake.busiest.fetch_max(busy.values().sum(), Ordering::SeqCst);
            }
            let answer = (fake.answer)(order).await;
            *fake.busy.lock().unwrap().get_mut(&origin).unwrap() -= 1;
            answer
        })
    }
}

/// The running task and both of its ends.
pub struct Bench {
    pub updates: mpsc::UnboundedSender<Update>,
    pub events: mpsc::Receiver<Event>,
    pub fake: Arc<FakeFetch>,
    /// How far the wall clock was set, in seconds.
    pub set: Arc<AtomicI64>,
    pub task: JoinHandle<()>,
}

impl Bench {
    pub fn start(settings: OcspSettings, cache: Option<Cache>, answer: Answerer) -> Self {
        let fake = FakeFetch::new(answer);
        let set = Arc::new(AtomicI64::new(0));
        let (begun, offset) = (fake.begun, set.clone());
        let environment = Environment {
            now: Box::new(move || wall(begun, &offset)),
            chance: Box::new(|| 0.5),
            fetch: Arc::new(FetchOf(fake.clone())),
            metrics: OcspMetrics::default(),
        };
        let (updates, inbox) = mpsc::unbounded_channel();
        let (outbox, events) = mpsc::channel(1);
        let task = tokio::spawn(run(environment, cache, settings, inbox, outbox));
        Self { updates, events, fake, set, task }
    }

    pub fn tell(&self, update: Update) {
        self.updates.send(update).unwrap();
    }

    pub fn tell_all(&self, wanted: &[Wanted]) {
        wanted.iter().for_each(|wanted| self.tell(Update::Add(wanted.clone())));
    }

    /// The next status of any certificate. That one is gone is read past.
    pub async fn next(&mut self) -> OcspStatus {
        loop {
            if let Event::Staple(status) = self.events.recv().await.expect("the task runs") {
                return (*status).clone();
            }
        }
    }

    /// The next event about `wanted` for which `is` holds. Others are read past.
    pub async fn event(&mut self, wanted: &Wanted, is: impl Fn(&OcspStatus) -> bool) -> OcspStatus {
        loop {
            let event = self.next().await;
            if event.fingerprint == wanted.fingerprint && is(&event) {
                return event;
            }
        }
    }

    pub async fn state(&mut self, wanted: &Wanted, state: OcspState) -> OcspStatus {
        self.event(wanted, |event| event.state == state).await
    }

    pub fn elapsed(&self) -> u64 {
        self.fake.begun.elapsed().as_secs()
    }
}

pub fn wall(begun: Instant, offset: &AtomicI64) -> Duration {
    let now = Duration::from_secs(NOW) + begun.elapsed();
    match offset.load(Ordering::SeqCst) {
        ahead @ 0.. => now + Duration::from_secs(ahead.unsigned_abs()),
        behind => now - Duration::from_secs(behind.unsigned_abs()),
    }
}

/// A CA whose leaves are asked about, shared with the answering side.
pub struct Pki {
    pub ca: Ca,
    pub leaves: Mutex<HashMap<Vec<u8>, rustls_pki_types::CertificateDer<'static>>>,
}

impl Pki {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { ca: Ca::new("issuer"), leaves: Mutex::default() })
    }

    pub fn wanted(&self, url: &str) -> Wanted {
        let leaf = self.ca.leaf().urls(&[url]).issue();
        self.wanted_leaf(&leaf)
    }

    pub fn wanted_leaf(&self, leaf: &Issued) -> Wanted {
        let wanted = Wanted::of(&[leaf.der.clone(), self.ca.der.clone()], "shop".into()).unwrap();
        let request = Request::new(&leaf.der, &self.ca.der).unwrap();
        self.leaves.lock().unwrap().insert(request.der().to_vec(), leaf.der.clone());
        wanted
    }

    /// "Good" for an hour from `now` to whatever `order` asks.
    pub fn good(&self, order: &Order, now: u64) -> Bytes {
        let leaf = self.leaves.lock().unwrap()[order.request.der()].clone();
        Answer::good(&leaf, &self.ca.der, now).sign(&self.ca.signer()).into()
    }

    /// A responder that always says "good" as of now.
    pub fn responder(self: &Arc<Self>) -> Answerer {
        let (pki, begun) = (self.clone(), Instant::now());
        Box::new(move |order| {
            let body = pki.good(&order, NOW + begun.elapsed().as_secs());
            Box::pin(async move { Ok(body) })
        })
    }
}

/// Plays `answers` in turn, the last one again and again.
pub fn scripted(answers: Vec<Result<Vec<u8>, ()>>) -> Answerer {
    let count = AtomicUsize::new(0);
    Box::new(move |_| {
        let turn = count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let answer = answers[turn].clone().map(Bytes::from).map_err(|()| ExchangeError::Http.into());
        Box::pin(async move { answer })
    })
}
