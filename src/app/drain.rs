//! The end of a generation: connections may finish what they are at.

use std::time::Duration;

use super::Control;
use crate::net::drain::Closing;
use crate::supervisor::messages::FromGeneration;

/// How often the supervisor is told what is left to drain.
const DRAIN_REPORT: Duration = Duration::from_millis(500);

impl Control {
    /// Lets connections finish. The supervisor ends it if it takes too long.
    pub(super) async fn drain(&mut self, closing: Closing) {
        tracing::info!(generation = self.handover.generation, "draining: open connections may finish");
        self.draining = true;
        // Nothing is compiled any more, and what is kept on disk is the next generation's to keep.
        if let Some(source) = self.source.take() {
            source.abort();
        }
        self.publish_view();
        if closing != Closing::All
            && let Some(admin) = self.admin_task.take()
        {
            // The next generation answers there.
            admin.abort();
        }
        self.webhook.stop();
        while let Ok(question) = self.webhook.questions.try_recv() {
            self.answer(question);
        }
        let (ca, outbox, last) = (self.ca.take(), self.outbox.take(), closing == Closing::All);
        let stats = self.workers.stats.clone();
        let connections = || stats.iter().map(|worker| worker.connections.get()).sum();
        let link = &self.handover.link;
        // All at once: an API server that does not answer must not keep connections from being drained.
        let ended = async move {
            let ca_ended = async {
                if let Some(ca) = ca {
                    ca.end().await;
                }
            };
            let told = async {
                if let Some(outbox) = outbox {
                    outbox.end(last).await;
                }
            };
            tokio::join!(ca_ended, told)
        };
        let mut drained = std::pin::pin!(async { tokio::join!(ended, self.workers.drain(closing)) });
        loop {
            link.tell(&FromGeneration::Draining { connections: connections() });
            if tokio::time::timeout(DRAIN_REPORT, &mut drained).await.is_ok() {
                return;
            }
        }
    }
}
