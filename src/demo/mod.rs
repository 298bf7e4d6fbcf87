//! `portcullis demo`: everything a gateway needs, made up on the spot, and a certificate that is replaced again
//! and again under load.
//!
//! The authority, backends, OCSP responder and clients run here; the gateway is `portcullis serve` in a process
//! of its own, the very one that is used elsewhere. Called by `cli::demo`; nothing else depends on it.

mod authority;
mod backend;
mod gateway;
mod load;
mod responder;
mod screen;
mod site;

use std::rc::Rc;
use std::time::Duration;

use anyhow::bail;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep_until};

use authority::{Authority, Key};
use gateway::Gateway;
pub use gateway::Ports;
use load::Clients;
use screen::Screen;
use site::{ROTATED, Site};

/// How the demo is to go.
pub struct Plan {
    pub ports: Ports,
    /// Between two rotations.
    pub rotate_every: Duration,
    /// Until somebody ends it, if `None`.
    pub duration: Option<Duration>,
}

/// How often the line that lives is written.
const REFRESH: Duration = Duration::from_millis(200);
/// A rotation that is not served by then counts as failed.
const LONGEST_ROTATION: Duration = Duration::from_secs(10);

/// Runs the demo to its end; whether nothing at all went wrong.
///
/// # Errors
/// It could not start, or the gateway ended before it was told to.
pub async fn run(plan: Plan) -> anyhow::Result<bool> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let authority = Rc::new(Authority::new()?);
    let backends = [backend::start_echo("web-1").await?, backend::start_echo("web-2").await?];
    let issuer = authority.clone();
    let responder = backend::start(move |request| responder::answer(issuer.clone(), request)).await?;
    let site = Site::create(&authority, &backends, &format!("http://{responder}"))?;

    let screen = Screen::new();
    let mut gateway = Gateway::start(&site, plan.ports)?;
    let clients = Rc::new(Clients::new(gateway.https(), authority.der().clone()));
    let first_serial = gateway.until_ready(&clients).await?;
    screen.introduce(&site, &gateway, plan.rotate_every);

    let mut load = JoinSet::new();
    load.spawn_local(clients.clone().stay());
    load.spawn_local(clients.clone().come_and_go());
    load.spawn_local(clients.clone().come_and_go());

    let mut rotations = Rotations { serials: (0, first_serial), ..Rotations::default() };
    let mut rotation = interval_at(Instant::now() + plan.rotate_every, plan.rotate_every);
    rotation.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refresh = interval(REFRESH);
    let begun = Instant::now();
    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = at(plan.duration.map(|duration| begun + duration)) => break,
            status = gateway.ended() => bail!("the gateway ended ({status}):\n{}", gateway.log()),
            _ = rotation.tick() => {
                rotations.rotate(&authority, &site, &clients).await?;
                screen.rotated(&rotations, &clients.tally);
            }
            _ = refresh.tick() => screen.refresh(&rotations, &clients.tally),
        }
    }
    // The clients go first: what they see from here on is the end and no failure.
    load.shutdown().await;
    let ended_well = gateway.stop().await?;
    screen.summarise(&rotations, &clients.tally, begun.elapsed());
    Ok(ended_well && rotations.failed == 0 && clients.tally.is_clean())
}

/// The rotations so far.
#[derive(Default)]
struct Rotations {
    /// How long each took from the rename of the file to the first handshake with the new certificate.
    latencies: Vec<Duration>,
    failed: u64,
    /// The serial number before the last rotation, and the one after it.
    serials: (u64, u64),
}

impl Rotations {
    async fn rotate(
        &mut self,
        authority: &Authority,
        site: &Site,
        clients: &Rc<Clients>,
    ) -> anyhow::Result<()> {
        let pair = authority.issue(ROTATED, Key::Ecdsa, None)?;
        site.rotate(&pair)?;
        let renamed = Instant::now();
        self.serials = (self.serials.1, pair.serial);
        // Apart from here, so that the other clients go on meanwhile.
        let clients = clients.clone();
        let probe = spawn_local(async move {
            while renamed.elapsed() < LONGEST_ROTATION {
                if let Ok((_, serial)) = clients.connect(ROTATED).await
                    && serial == pair.serial
                {
                    return Some(renamed.elapsed());
                }
            }
            None
        });
        match probe.await? {
            Some(latency) => self.latencies.push(latency),
            None => self.failed += 1,
        }
        Ok(())
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
