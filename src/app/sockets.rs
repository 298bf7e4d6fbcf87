//! The listening sockets of this generation: which ones the settings ask for, and which worker gets which.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::Context;

use crate::net::listen;
use crate::settings::{Settings, choices::Source};
use crate::supervisor::link::Link;
use crate::supervisor::messages::{Listener, Port};

/// Everything to listen on.
pub(super) struct Sockets {
    pub workers: Vec<WorkerSockets>,
    pub admin: TcpListener,
    /// Of the workload CA, where there is one.
    pub ca: Vec<TcpListener>,
    /// Of the admission webhook, where there is one.
    pub webhook: Option<TcpListener>,
}

/// What one worker listens on.
#[derive(Default)]
pub(super) struct WorkerSockets {
    pub http: Vec<TcpListener>,
    pub https: Vec<TcpListener>,
    pub mesh: Vec<TcpListener>,
    pub hbone: Vec<TcpListener>,
}

impl Sockets {
    /// Asks the supervisor for what the settings say.
    ///
    /// # Errors
    /// A port is in use, or not ours to bind.
    pub fn from_supervisor(settings: &Settings, link: &Link) -> anyhow::Result<Self> {
        let count = worker_count(settings);
        let listeners = listeners(settings, count);
        let mut workers: Vec<_> = (0..count).map(|_| WorkerSockets::default()).collect();
        let (mut admin, mut webhook, mut ca) = (None, None, Vec::new());
        for (listener, sockets) in listeners.iter().zip(link.listen(listeners.clone())?) {
            let single = match listener.port {
                Port::AdminPort => Some(&mut admin),
                Port::WebhookPort => Some(&mut webhook),
                Port::HttpPort | Port::HttpsPort | Port::MeshPort | Port::HbonePort | Port::CaPort => None,
            };
            if let Some(single) = single {
                *single = sockets.into_iter().next();
                continue;
            }
            if listener.port == Port::CaPort {
                ca.extend(sockets);
                continue;
            }
            for (worker, sockets) in workers.iter_mut().zip(deal(sockets, count)?) {
                match listener.port {
                    Port::HttpsPort => worker.https.extend(sockets),
                    Port::MeshPort => worker.mesh.extend(sockets),
                    Port::HbonePort => worker.hbone.extend(sockets),
                    _ => worker.http.extend(sockets),
                }
            }
        }
        Ok(Self { workers, admin: admin.context("the admin port has no socket")?, ca, webhook })
    }
}

impl WorkerSockets {
    /// Lets connections come in by them.
    pub fn start(&self) -> anyhow::Result<()> {
        for socket in self.http.iter().chain(&self.https).chain(&self.mesh).chain(&self.hbone) {
            listen::start(socket).with_context(|| match socket.local_addr() {
                Ok(address) => format!("cannot listen on {address}"),
                Err(_) => "cannot listen".into(),
            })?;
        }
        Ok(())
    }
}

fn listeners(settings: &Settings, workers: usize) -> Vec<Listener> {
    let mut listeners = Vec::new();
    for ip in &settings.bind_address {
        let public = [(Port::HttpPort, settings.http_port), (Port::HttpsPort, settings.https_port)];
        let mesh = settings.mesh_port.map(|number| (Port::MeshPort, number));
        let hbone = settings.hbone_port.map(|number| (Port::HbonePort, number));
        for (port, number) in public.into_iter().chain(mesh).chain(hbone) {
            listeners.push(Listener { port, address: SocketAddr::new(*ip, number), sockets: workers });
        }
    }
    if settings.ca {
        let address = SocketAddr::new(settings.ca_bind_address, settings.ca_port);
        listeners.push(Listener { port: Port::CaPort, address, sockets: 1 });
    }
    let admin = SocketAddr::new(settings.admin_bind_address, settings.admin_port);
    listeners.push(Listener { port: Port::AdminPort, address: admin, sockets: 1 });
    if let Some(address) = settings.validating_webhook.filter(|_| settings.source == Source::Kubernetes) {
        listeners.push(Listener { port: Port::WebhookPort, address, sockets: 1 });
    }
    listeners
}

/// Deals sockets out to workers: every socket to some worker, since what is queued on it must be taken, and at
/// least one to every worker, who may have to share it.
fn deal(sockets: Vec<TcpListener>, workers: usize) -> anyhow::Result<Vec<Vec<TcpListener>>> {
    let shared = match sockets.len() {
        0 => 0..0,
        count => count..workers.max(count),
    };
    let shared: Vec<_> = shared
        .filter_map(|worker| sockets.get(worker % sockets.len()))
        .map(TcpListener::try_clone)
        .collect::<Result<_, _>>()
        .context("cannot share a socket")?;
    let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (turn, socket) in sockets.into_iter().chain(shared).enumerate() {
        if let Some(worker) = dealt.get_mut(turn % workers) {
            worker.push(socket);
        }
    }
    Ok(dealt)
}

fn worker_count(settings: &Settings) -> usize {
    match settings.workers {
        0 => thread::available_parallelism().map_or(1, usize::from),
        workers => workers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(sockets: usize, workers: usize) -> Vec<usize> {
        let sockets = (0..sockets).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        deal(sockets, workers).unwrap().iter().map(Vec::len).collect()
    }

    #[test]
    fn no_socket_is_left_over_and_no_worker_goes_without() {
        assert_eq!(dealt(4, 4), [1, 1, 1, 1]);
        assert_eq!(dealt(5, 2), [3, 2]);
        assert_eq!(dealt(1, 3), [1, 1, 1]);
        assert_eq!(dealt(2, 3), [1, 1, 1]);
        assert_eq!(dealt(0, 2), [0, 0]);
    }

    #[test]
    fn every_address_has_both_ports_and_the_admin_port_one_socket() {
        let settings = Settings {
            bind_address: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            ..Settings::default()
        };
        let asked: Vec<_> = listeners(&settings, 3)
            .into_iter()
            .map(|listener| format!("{} {} {}", listener.port.as_str(), listener.address, listener.sockets))
            .collect();
        assert_eq!(
            asked,
            [
                "http-port 127.0.0.1:8080 3",
                "https-port 127.0.0.1:8443 3",
                "http-port [::1]:8080 3",
                "https-port [::1]:8443 3",
                "admin-port 127.0.0.1:10254 1",
            ]
        );
    }
}
