//! Tells systemd how the gateway is (`sd_notify(3)`, `Type=notify` and `notify-reload`). Without systemd nobody
//! listens, and nothing is said.

use sd_notify::NotifyState;

/// What systemd has been told last.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Service {
    #[default]
    Starting,
    Ready,
    Reloading,
    Stopping,
}

impl Service {
    /// Some generation serves and none is being started.
    pub fn ready(&mut self) {
        if !matches!(self, Self::Ready | Self::Stopping) {
            *self = Self::Ready;
            tell(&[NotifyState::Ready]);
        }
    }

    /// A new generation is being started beside the one that serves.
    pub fn reloading(&mut self) {
        if *self == Self::Ready {
            *self = Self::Reloading;
            match NotifyState::monotonic_usec_now() {
                Ok(now) => tell(&[NotifyState::Reloading, now]),
                Err(_) => tell(&[NotifyState::Reloading]),
            }
        }
    }

    pub fn stopping(&mut self) {
        if *self != Self::Stopping {
            *self = Self::Stopping;
            tell(&[NotifyState::Stopping]);
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}
