//! Opens connections: resolves the name of an ExternalName Service, connects, and handshakes where asked to.
//!
//! Called by the pool when it has nothing idle. The caller bounds it all with the connect timeout.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ahash::AHashMap;
use tokio::net::{TcpStream, lookup_host};

use super::error::{Reason, Retry, UpstreamError};
use super::pool::{Key, Protocol};
use super::stream::Stream;
use super::tunnel::Tunnels;
use crate::net::deadlines::{Deadlines, Tick};
use crate::snapshot::clusters::Endpoint;
use crate::snapshot::policies;
use crate::tls::client::{Alpn, ClientTlsError};

/// How long an answer of the resolver is used. The operating system's resolver hides the true time to live.
const NAME_LIFETIME: Duration = Duration::from_secs(5);
/// Names come from Services; more than this is a flood, and starting over is cheap.
const MAX_NAMES: usize = 1024;

/// Opens connections for one worker.
pub struct Connector {
    deadlines: Deadlines,
    names: RefCell<AHashMap<Endpoint, Resolved>>,
    guarded: Box<Guarded>,
    pub tunnels: Tunnels,
}

/// Whether transport policy may be about what is at an address: a name must not lead there, because nobody has asked
/// the policies about it.
pub type Guarded = dyn Fn(IpAddr) -> bool;

struct Resolved {
    addresses: Rc<[SocketAddr]>,
    at: Tick,
}

impl Connector {
    pub fn new(deadlines: Deadlines) -> Self {
        let tunnels = Tunnels::new(deadlines.clone());
        Self { deadlines, names: RefCell::default(), guarded: Box::new(|_| false), tunnels }
    }

    /// Keeps names from leading to addresses that are `guarded`.
    pub fn guard_names(&mut self, guarded: Box<Guarded>) {
        self.guarded = guarded;
    }

    /// Whether a connection to `endpoint` that was made earlier may still be used: a name may have led to where policy
    /// has had something to say since.
    pub fn may_use(&self, endpoint: &Endpoint, peer: impl FnOnce() -> Option<IpAddr>) -> bool {
        match endpoint {
            Endpoint::Address(_) => true,
            Endpoint::Name { .. } => peer().is_some_and(|address| !(self.guarded)(address)),
        }
    }

    /// A new connection for `key`, ready for its protocol. Every failure is safe to retry: no request was sent.
    pub async fn connect(&self, key: &Key) -> Result<Stream, UpstreamError> {
        if let (Endpoint::Address(address), Some(via)) = (&key.endpoint, &key.via) {
            let tunnel = self.tunnels.open(*address, via).await;
            return tunnel
                .map(|tunnel| Stream::Tunnel(Box::new(tunnel)))
                .map_err(|error| error.retry(Retry::Safe));
        }
        let (tcp, address) =
            self.connect_tcp(&key.endpoint).await.map_err(|error| error.retry(Retry::Safe))?;
        let Some(identity) = &key.tls else { return Ok(Stream::Tcp(tcp)) };
        let alpn = match key.protocol {
            Protocol::Http1 => Alpn::Http1,
            Protocol::Http2 => Alpn::Http2,
        };
        let tls = identity.tls.connect(tcp, &identity.server_name, address.ip(), alpn).await;
        tls.map(|tls| Stream::Tls(Box::new(tls))).map_err(|error| explain_tls(error).retry(Retry::Safe))
    }

    async fn connect_tcp(&self, endpoint: &Endpoint) -> Result<(TcpStream, SocketAddr), UpstreamError> {
        match endpoint {
            Endpoint::Address(address) => connect_address(*address).await,
            Endpoint::Name { host, port } => {
                let (mut last, mut guarded) = (UpstreamError::new(Reason::NameNotFound), false);
                for address in self.resolve(endpoint, host, *port).await?.iter() {
                    if (self.guarded)(address.ip()) {
                        guarded = true;
                        continue;
                    }
                    match connect_address(*address).await {
                        Ok(connected) => return Ok(connected),
                        Err(error) => last = error,
                    }
                }
                match guarded {
                    true => Err(Reason::Denied(policies::Reason::Undecidable).into()),
                    false => Err(last),
                }
            }
        }
    }

    async fn resolve(
        &self,
        endpoint: &Endpoint,
        host: &str,
        port: u16,
    ) -> Result<Rc<[SocketAddr]>, UpstreamError> {
        let now = self.deadlines.now();
        if let Some(known) = self.names.borrow().get(endpoint)
            && now.since(known.at) < NAME_LIFETIME
        {
            return Ok(known.addresses.clone());
        }
        let found = lookup_host((host, port)).await;
        let addresses: Rc<[SocketAddr]> =
            found.map_err(|error| UpstreamError::new(Reason::NameNotFound).caused_by(error))?.collect();
        let mut names = self.names.borrow_mut();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert(endpoint.clone(), Resolved { addresses: addresses.clone(), at: now });
        Ok(addresses)
    }
}

pub(super) async fn connect_address(address: SocketAddr) -> Result<(TcpStream, SocketAddr), UpstreamError> {
    let connected = async {
        let tcp = TcpStream::connect(address).await?;
        // A small frame must not wait for the acknowledgement of the one before it.
        tcp.set_nodelay(true)?;
        io::Result::Ok(tcp)
    };
    match connected.await {
        Ok(tcp) => Ok((tcp, address)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Err(UpstreamError::new(Reason::ConnectRefused).caused_by(error))
        }
        Err(error) => Err(UpstreamError::new(Reason::ConnectFailed).caused_by(error)),
    }
}

pub(super) fn explain_tls(error: ClientTlsError) -> UpstreamError {
    let reason = match error {
        ClientTlsError::UnknownCa => Reason::CertUnknownCa,
        ClientTlsError::WrongName => Reason::CertWrongName,
        ClientTlsError::Expired => Reason::CertExpired,
        ClientTlsError::Certificate(_) => Reason::CertInvalid,
        ClientTlsError::Protocol => Reason::TlsProtocol,
        ClientTlsError::Handshake(_) => Reason::TlsFailed,
    };
    UpstreamError::new(reason).caused_by(error)
}
