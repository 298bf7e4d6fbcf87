//! The control loop's end of the admission webhook: its socket until it is put to use, what it asks, and the answers,
//! which the loop gives between two changes so that each is about one consistent store.

use std::net::TcpListener;

use tokio::sync::{mpsc, watch};

use super::Control;
use crate::admission::{self, Admission, Answer, Question, Review, judge};
use crate::clock::now;

/// The webhook as the control loop knows it; without a socket it is never started.
pub(super) struct Webhook {
    /// Until it is put to use.
    listener: Option<TcpListener>,
    stop: watch::Sender<bool>,
    /// What the webhook asks, and where it does.
    pub questions: mpsc::Receiver<Question>,
    sender: mpsc::Sender<Question>,
}

impl Webhook {
    pub fn new(listener: Option<TcpListener>) -> Self {
        let (sender, questions) = admission::questions();
        Self { listener, stop: watch::channel(false).0, questions, sender }
    }

    /// What has been asked is still to be answered; nothing more is asked.
    pub fn stop(&mut self) {
        self.stop.send_replace(true);
        self.questions.close();
    }
}

impl Control {
    /// Puts the webhook's socket to use, where there is one and an API server.
    pub(super) fn start_webhook(&mut self) -> anyhow::Result<()> {
        let (Some(listener), Some(api), Some(outbox)) =
            (self.webhook.listener.take(), &self.api, &self.outbox)
        else {
            return Ok(());
        };
        let admission = Admission {
            listener: tokio::net::TcpListener::from_std(listener)?,
            api: api.clone(),
            namespace: outbox.namespace().to_owned(),
            settings: self.settings_sender.subscribe(),
            leader: outbox.leader(),
            stop: self.webhook.stop.subscribe(),
        };
        tokio::task::spawn_local(admission.run(self.webhook.sender.clone()));
        Ok(())
    }

    /// Judges an Ingress that is about to be written. Nothing changes by it.
    pub(super) fn answer(&mut self, question: Question) {
        let answer = match Review::parse(&question.body) {
            _ if !self.handover.ready_sent => Answer::NotReady,
            Err(error) => Answer::Malformed(error),
            Ok(review) => {
                let verdict = judge(&review, &mut self.store, &self.compiled, &self.settings, now());
                Answer::Review(review.answer(&verdict))
            }
        };
        // Whoever asked may have given up.
        let _ = question.answer.send(answer);
    }
}
