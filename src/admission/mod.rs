//! The validating admission webhook: API servers ask it about every Ingress that is about to be written. It refuses
//! what would take another's path or cannot be meant, and warns of what will not work.
//!
//! ```text
//! API server ──TLS──► service ──Question──► control loop: verdict, on its store ──Answer──► service
//!                        ▲
//!                     identity: root in a Secret, certificate, caBundle
//! ```
//!
//! A question changes nothing: the control loop puts the candidate into its store, compiles, looks, and takes it out
//! again before anything else happens. Nothing but the API server's failure policy depends on the answer.

mod identity;
mod listener;
mod review;
mod service;
mod verdict;

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use crate::api_server::Api;
use crate::settings::Settings;
use identity::Identity;
pub use review::{Review, ReviewError};
pub use verdict::{Verdict, judge};

/// Questions that may wait for the control loop; more are turned away.
const QUESTIONS: usize = 8;

/// What an API server asks, and where the answer goes.
pub struct Question {
    /// An AdmissionReview.
    pub body: Bytes,
    pub answer: oneshot::Sender<Answer>,
}

/// What comes of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// An AdmissionReview with the verdict.
    Review(String),
    /// What was asked is no AdmissionReview that can be answered.
    Malformed(ReviewError),
    /// The gateway does not know enough yet to judge.
    NotReady,
}

/// What the webhook runs with.
pub struct Admission {
    pub listener: TcpListener,
    pub api: Api,
    /// Where the root is kept.
    pub namespace: String,
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Whether this replica is the one that writes.
    pub leader: watch::Receiver<bool>,
    /// Becomes true when another generation goes on.
    pub stop: watch::Receiver<bool>,
}

/// The two ends of the way to the control loop.
pub fn questions() -> (mpsc::Sender<Question>, mpsc::Receiver<Question>) {
    mpsc::channel(QUESTIONS)
}

impl Admission {
    /// Serves until it is told to stop. Until there is a certificate, clients wait.
    pub async fn run(self, questions: mpsc::Sender<Question>) {
        let mut identity = Identity::new(self.api, self.namespace, self.settings, self.leader);
        let mut stop = self.stop.clone();
        let tls = tokio::select! {
            tls = identity.first() => tls,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let answer = move |request| service::answer(request, questions.clone());
        tokio::select! {
            () = listener::serve(self.listener, tls, answer, self.stop) => {}
            () = identity.keep() => {}
        }
    }
}
