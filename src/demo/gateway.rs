//! The demo's gateway: `portcullis serve` of this same binary, as a child process.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::load::Clients;
use super::site::{ROTATED, Site};

/// The ports of the gateway; 0 lets the demo choose a free one.
#[derive(Clone, Copy)]
pub struct Ports {
    pub http: u16,
    pub https: u16,
    pub admin: u16,
}

/// A running gateway; killed when it is dropped.
pub struct Gateway {
    process: Child,
    ports: Ports,
    log: PathBuf,
}

/// The longest time to the first handshake; it takes well under a second.
const START: Duration = Duration::from_secs(20);
/// The longest time to end, which leaves connections 5 seconds.
const END: Duration = Duration::from_secs(10);

impl Gateway {
    pub fn start(site: &Site, ports: Ports) -> anyhow::Result<Self> {
        let ports = ports.choose().context("no free port on 127.0.0.1")?;
        let log = File::create(site.log())?;
        let process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--settings")
            .arg(site.settings())
            .arg("--manifests")
            .arg(site.manifests())
            .args(["--source", "directory", "--bind-address", "127.0.0.1"])
            .args(["--http-port", &ports.http.to_string()])
            .args(["--https-port", &ports.https.to_string()])
            .args(["--admin-port", &ports.admin.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C at the terminal is for the demo alone, which ends the gateway when its clients are gone.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the gateway")?;
        Ok(Self { process, ports, log: site.log() })
    }

    pub fn http(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.http).into()
    }

    pub fn https(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.https).into()
    }

    pub fn admin(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.admin).into()
    }

    /// Waits for the first handshake that succeeds; the serial number of its certificate.
    pub async fn until_ready(&mut self, clients: &Clients) -> anyhow::Result<u64> {
        let ready = async {
            loop {
                if let Ok((_, serial)) = clients.connect(ROTATED).await {
                    return serial;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            serial = ready => Ok(serial),
            status = self.process.wait() => {
                bail!("the gateway did not start ({}):\n{}", describe(status), log_of(&self.log))
            }
            () = sleep(START) => bail!("the gateway is not ready in time:\n{}", log_of(&self.log)),
        }
    }

    /// Waits until it ends by itself, and says how.
    pub async fn ended(&mut self) -> String {
        describe(self.process.wait().await)
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        log_of(&self.log)
    }

    /// Tells it to end; whether it did so in time and without an error.
    pub async fn stop(mut self) -> anyhow::Result<bool> {
        let pid = self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM)?;
        }
        match timeout(END, self.process.wait()).await {
            Ok(status) => Ok(status?.success()),
            Err(_) => {
                self.process.kill().await?;
                Ok(false)
            }
        }
    }
}

impl Ports {
    /// Free ports where none is given. Nobody holds them until the gateway does; a collision shows in its log.
    fn choose(self) -> std::io::Result<Self> {
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        // Held together, so that they differ.
        let held = [free()?, free()?, free()?];
        let [http, https, admin] = [&held[0], &held[1], &held[2]].map(TcpListener::local_addr);
        let or = |given: u16, free: SocketAddr| if given == 0 { free.port() } else { given };
        Ok(Self { http: or(self.http, http?), https: or(self.https, https?), admin: or(self.admin, admin?) })
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

fn log_of(file: &std::path::Path) -> String {
    const LINES: usize = 20;
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}
