//! The listening sockets, which the supervisor owns for as long as any generation may need them: they are handed
//! out, never closed and bound again.
//!
//! A group of `SO_REUSEPORT` sockets only grows. What is added gets no connection before a generation that takes
//! connections from it puts it to use; what fewer workers no longer need goes on being served, several sockets
//! to one worker, because the kernel would reset what is queued on a socket that is closed.

use std::net::{SocketAddr, TcpListener};

use rustix::net::sockopt::{socket_acceptconn, socket_reuseport};

use super::messages::{Listener, Port};
use crate::net::inherit::Activated;
use crate::net::listen::{listen, reserve};

/// All listening sockets of the gateway.
#[derive(Debug, Default)]
pub struct Sockets {
    groups: Vec<Group>,
    /// From systemd, until somebody asks for them.
    activated: Vec<Activated>,
}

/// The sockets of one address.
#[derive(Debug)]
struct Group {
    port: Port,
    /// As it was asked for.
    address: SocketAddr,
    sockets: Vec<TcpListener>,
}

/// Sockets that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({}): {source}", port.as_str())]
pub struct OpenError {
    port: Port,
    address: SocketAddr,
    source: std::io::Error,
}

impl Sockets {
    /// Starts with what systemd has opened.
    pub fn new(activated: Vec<Activated>) -> Self {
        Self { groups: Vec::new(), activated }
    }

    /// Opens what is not there yet. What was opened before an error stays, until [`Sockets::keep`].
    pub fn open(&mut self, wanted: &[Listener]) -> Result<(), OpenError> {
        for listener in wanted {
            self.open_one(listener).map_err(|source| OpenError {
                port: listener.port,
                address: listener.address,
                source,
            })?;
        }
        Ok(())
    }

    /// The sockets of `listener`: at least one, and not always as many as it asks for.
    pub fn of(&self, listener: &Listener) -> &[TcpListener] {
        self.groups.iter().find(|group| group.is(listener)).map_or(&[], |group| &group.sockets)
    }

    /// Closes what none of `wanted` asks for.
    pub fn keep(&mut self, wanted: &[Listener]) {
        self.groups.retain_mut(|group| {
            let wanted = wanted.iter().filter(|listener| group.is(listener)).map(|listener| listener.sockets);
            let Some(most) = wanted.max() else { return false };
            // One that was put to use once may have connections queued.
            let used =
                group.sockets.iter().skip(most).filter(|socket| socket_acceptconn(socket).unwrap_or(true));
            let count = most + used.count();
            group.sockets.truncate(count);
            true
        });
    }

    /// Closes all.
    pub fn close(&mut self) {
        self.groups.clear();
        self.activated.clear();
    }

    fn open_one(&mut self, wanted: &Listener) -> std::io::Result<()> {
        // Another address on a port of ours, as `::` after `127.0.0.1`: nobody else's, so there's no need to ask.
        let ours = wanted.address.port() != 0
            && self.groups.iter().any(|group| group.address.port() == wanted.address.port());
        if let Some(group) = self.groups.iter_mut().find(|group| group.is(wanted)) {
            return group.grow(wanted.sockets);
        }
        let (activated, others): (Vec<_>, _) =
            self.activated.drain(..).partition(|activated| is_for(activated, wanted));
        self.activated = others;
        let sockets = match activated.is_empty() {
            false => activated.into_iter().map(|activated| activated.socket).collect(),
            true if ours => reserve(wanted.address, wanted.sockets)?,
            true => listen(wanted.address, wanted.sockets)?,
        };
        self.groups.push(Group { port: wanted.port, address: wanted.address, sockets });
        Ok(())
    }
}

impl Group {
    fn is(&self, listener: &Listener) -> bool {
        // Ports that the system chose are told apart by what they are for.
        self.address == listener.address && (self.address.port() != 0 || self.port == listener.port)
    }

    fn grow(&mut self, count: usize) -> std::io::Result<()> {
        let Some(first) = self.sockets.first() else { return Ok(()) };
        // Without SO_REUSEPORT, as systemd opens them, there can be no second one; workers then share it.
        if self.sockets.len() < count && socket_reuseport(first)? {
            let more = reserve(first.local_addr()?, count - self.sockets.len())?;
            self.sockets.extend(more);
        }
        Ok(())
    }
}

/// By the name of the socket unit, or else by its address.
fn is_for(activated: &Activated, wanted: &Listener) -> bool {
    let ports = [
        Port::HttpPort,
        Port::HttpsPort,
        Port::MeshPort,
        Port::HbonePort,
        Port::AdminPort,
        Port::CaPort,
        Port::WebhookPort,
    ];
    let names = ports.map(Port::as_str);
    match names.contains(&activated.name.as_str()) {
        true => activated.name == wanted.port.as_str(),
        false => activated.socket.local_addr().is_ok_and(|address| address == wanted.address),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;
    use crate::net::listen::start;

    fn listener(port: Port, address: SocketAddr, sockets: usize) -> Listener {
        Listener { port, address, sockets }
    }

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn local(sockets: &Sockets, listener: &Listener) -> SocketAddr {
        sockets.of(listener)[0].local_addr().unwrap()
    }

    #[test]
    fn ports_that_the_system_chose_stay_and_are_told_apart() {
        let mut sockets = Sockets::default();
        let (http, https) = (listener(Port::HttpPort, ANY, 2), listener(Port::HttpsPort, ANY, 2));
        sockets.open(&[http.clone(), https.clone()]).unwrap();
        let before = (local(&sockets, &http), local(&sockets, &https));
        assert_ne!(before.0, before.1);
        sockets.open(&[http.clone(), https.clone()]).unwrap();
        assert_eq!((local(&sockets, &http), local(&sockets, &https)), before);
    }

    #[test]
    fn a_group_grows_and_what_was_put_to_use_is_never_closed() {
        let mut sockets = Sockets::default();
        let (two, four) = (listener(Port::HttpPort, ANY, 2), listener(Port::HttpPort, ANY, 4));
        sockets.open(std::slice::from_ref(&two)).unwrap();
        sockets.open(std::slice::from_ref(&four)).unwrap();
        assert_eq!(sockets.of(&two).len(), 4);
        sockets.keep(std::slice::from_ref(&two));
        assert_eq!(sockets.of(&two).len(), 2, "they were not in use");

        sockets.open(std::slice::from_ref(&four)).unwrap();
        sockets.of(&four).iter().for_each(|socket| start(socket).unwrap());
        sockets.keep(std::slice::from_ref(&two));
        assert_eq!(sockets.of(&two).len(), 4);
        let address = local(&sockets, &two);
        sockets.keep(&[]);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn another_address_of_the_same_port_is_had_while_the_first_is_open() {
        let mut sockets = Sockets::default();
        let first = listener(Port::HttpPort, ANY, 1);
        sockets.open(std::slice::from_ref(&first)).unwrap();
        let port = local(&sockets, &first).port();
        // The group as it would be, had the port been asked for by its number.
        sockets.groups[0].address.set_port(port);
        let all = listener(Port::HttpPort, (Ipv4Addr::UNSPECIFIED, port).into(), 1);
        sockets.open(std::slice::from_ref(&all)).unwrap();
        assert_eq!(local(&sockets, &all).ip(), Ipv4Addr::UNSPECIFIED);
    }

    #[test]
    fn a_port_in_use_is_named() {
        let taken = TcpListener::bind(ANY).unwrap();
        let address = taken.local_addr().unwrap();
        let error = Sockets::default().open(&[listener(Port::HttpsPort, address, 1)]).unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("cannot listen on {address} (https-port): ")),
            "{error}"
        );
    }

    #[test]
    fn sockets_from_systemd_are_found_by_name_or_address() {
        let socket = |name: &str| Activated { name: name.into(), socket: TcpListener::bind(ANY).unwrap() };
        let (named, unnamed) = (socket("https-port"), socket("unknown"));
        let (of_named, of_unnamed) =
            (named.socket.local_addr().unwrap(), unnamed.socket.local_addr().unwrap());
        let mut sockets = Sockets::new(vec![named, unnamed]);
        let https = listener(Port::HttpsPort, (Ipv4Addr::UNSPECIFIED, 443).into(), 4);
        let http = listener(Port::HttpPort, of_unnamed, 4);
        sockets.open(&[http.clone(), https.clone()]).unwrap();
        assert_eq!((local(&sockets, &https), local(&sockets, &http)), (of_named, of_unnamed));
        sockets.open(std::slice::from_ref(&https)).unwrap();
        assert_eq!(sockets.of(&https).len(), 1, "no other socket can join one without SO_REUSEPORT");
    }
}
