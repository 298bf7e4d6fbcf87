//! The PROXY protocol, versions 1 and 2: what a load balancer says about the client it stands for, ahead of
//! everything else on a connection.
//!
//! Called by the worker for ports that are set to it, within a deadline of the caller's. Reads exactly the header
//! and not a byte more: what follows is for TLS or HTTP to read.

use std::io;
use std::net::SocketAddr;

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The start of every header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_1: &[u8] = b"PROXY ";
/// The longest header of version 1, line end included.
const MAX_VERSION_1: usize = 107;
/// The most that may follow the first 16 bytes of version 2: addresses take 36, the rest is for TLVs.
const MAX_VERSION_2: usize = 4096;

/// A connection as the load balancer accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxied {
    pub client: SocketAddr,
    /// Where the client connected to.
    pub destination: SocketAddr,
}

/// Why a connection has no usable header.
#[derive(Debug, thiserror::Error)]
pub enum ProxyProtocolError {
    #[error("closed inside the PROXY protocol header: {0}")]
    Closed(#[from] io::Error),
    #[error("the connection does not start with a PROXY protocol header")]
    Missing,
    #[error("the PROXY protocol header is too long")]
    TooLong,
    #[error("the PROXY protocol header is malformed")]
    Malformed,
}

/// Reads the header. `None` where it speaks of no client: a health check of the load balancer itself (`LOCAL`), or
/// one whose address it does not know (`UNKNOWN`).
pub async fn read_header(stream: &mut TcpStream) -> Result<Option<Proxied>, ProxyProtocolError> {
    let mut header = vec![0; SIGNATURE.len()];
    stream.read_exact(&mut header).await?;
    if header == SIGNATURE {
        read_version_2(stream, &mut header).await?;
    } else if header.starts_with(VERSION_1) {
        read_version_1(stream, &mut header).await?;
    } else {
        return Err(ProxyProtocolError::Missing);
    }
    parse(&header)
}

async fn read_version_2(stream: &mut TcpStream, header: &mut Vec<u8>) -> Result<(), ProxyProtocolError> {
    let mut rest = [0; 4];
    stream.read_exact(&mut rest).await?;
    let [_, _, high, low] = rest;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_VERSION_2 {
        return Err(ProxyProtocolError::TooLong);
    }
    header.extend(rest);
    let begin = header.len();
    header.resize(begin + length, 0);
    stream.read_exact(header.get_mut(begin..).unwrap_or_default()).await?;
    Ok(())
}

/// Up to the line end, which may come in any number of pieces; looks before it takes.
async fn read_version_1(stream: &mut TcpStream, header: &mut Vec<u8>) -> Result<(), ProxyProtocolError> {
    let mut ahead = [0; MAX_VERSION_1];
    while !header.ends_with(b"\n") {
        let room = MAX_VERSION_1.saturating_sub(header.len());
        if room == 0 {
            return Err(ProxyProtocolError::TooLong);
        }
        let window = ahead.get_mut(..room).unwrap_or_default();
        let seen = stream.peek(window).await?;
        let line = window.get(..seen).unwrap_or_default();
        let take = line.iter().position(|byte| *byte == b'\n').map_or(seen, |end| end + 1);
        if take == 0 {
            return Err(ProxyProtocolError::Closed(io::ErrorKind::UnexpectedEof.into()));
        }
        let taken = window.get_mut(..take).unwrap_or_default();
        stream.read_exact(taken).await?;
        header.extend_from_slice(taken);
    }
    Ok(())
}

/// What a whole header says.
///
/// # Errors
/// It is no header, or speaks of something other than TCP.
pub fn parse(header: &[u8]) -> Result<Option<Proxied>, ProxyProtocolError> {
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let (parsed, length) = ProxyHeader::parse(header, config).map_err(|_| ProxyProtocolError::Malformed)?;
    if length != header.len() {
        return Err(ProxyProtocolError::Malformed);
    }
    match parsed.proxied_address() {
        None => Ok(None),
        Some(address) if address.protocol == Protocol::Stream => {
            Ok(Some(Proxied { client: address.source, destination: address.destination }))
        }
        Some(_) => Err(ProxyProtocolError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    fn version_2(command: u8, family: u8, addresses: &[u8], tlvs: usize) -> Vec<u8> {
        let mut rest = addresses.to_vec();
        if tlvs > 0 {
            rest.extend([0xea, (tlvs >> 8) as u8, tlvs as u8]);
            rest.extend(vec![7; tlvs]);
        }
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &length, &rest].concat()
    }

    const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x10, 0x00, 0x01, 0xbb];

    /// Sends `bytes` in pieces: what is read as the header, and what is left for the protocol behind it.
    async fn read(bytes: &[u8], cut: usize) -> (Result<Option<Proxied>, ProxyProtocolError>, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let send = async move {
            for piece in bytes.chunks(cut) {
                if client.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let (header, ()) = tokio::join!(read_header(&mut server), send);
        let mut rest = Vec::new();
        if header.is_ok() {
            server.read_to_end(&mut rest).await.unwrap();
        }
        (header, rest)
    }

    #[tokio::test]
    async fn headers_of_both_versions_however_they_are_cut() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let ipv4 =
            Some(Proxied { client: address("192.0.2.1:4096"), destination: address("198.51.100.2:443") });
        let ipv6 = Some(Proxied {
            client: address("[2001:db8::1]:4096"),
            destination: address("[2001:db8::2]:443"),
        });
        let v6: Vec<u8> = [
            &"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets()[..],
            &"2001:db8::2".parse::<std::net::Ipv6Addr>().unwrap().octets(),
            &[0x10, 0x00, 0x01, 0xbb],
        ]
        .concat();
        for (header, expected) in [
            (b"PROXY TCP4 192.0.2.1 198.51.100.2 4096 443\r\n".to_vec(), ipv4),
            (b"PROXY TCP6 2001:db8::1 2001:db8::2 4096 443\r\n".to_vec(), ipv6),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n".to_vec(), None),
            (version_2(1, 0x11, &IPV4, 0), ipv4),
            (version_2(1, 0x11, &IPV4, 512), ipv4),
            (version_2(1, 0x21, &v6, 0), ipv6),
            (version_2(0, 0x00, b"", 0), None),
            (version_2(0, 0x11, &IPV4, 512), None),
        ] {
            for cut in [1, 5, 13, 1000] {
                let (found, rest) = read(&[&header[..], b"GET / HTTP/1.1\r\n"].concat(), cut).await;
                assert_eq!(found.unwrap(), expected, "{:?}", String::from_utf8_lossy(&header));
                assert_eq!(rest, b"GET / HTTP/1.1\r\n", "cut every {cut}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_header() {
        use ProxyProtocolError::{Closed, Malformed, Missing, TooLong};
        let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat();
        let huge = [&SIGNATURE[..], &[0x21, 0x11, 0xff, 0xff]].concat();
        let is = |found: &ProxyProtocolError, wanted: &str| format!("{found:?}").starts_with(wanted);
        for (bytes, wanted) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), "Missing"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00".to_vec(), "Missing"),
            (b"PROXY".to_vec(), "Closed"),
            (b"PROXY TCP4 192.0.2.1 198.51".to_vec(), "Closed"),
            (b"PROXY TCP4 192.0.2.1 198.51.100.2 4096 443\n".to_vec(), "Malformed"),
            (b"PROXY TCP4 192.0.2.1 198.51.100.2 4096 99999\r\n".to_vec(), "Malformed"),
            (b"PROXY TCP4 2001:db8::1 198.51.100.2 4096 443\r\n".to_vec(), "Malformed"),
            (b"PROXY UDP4 192.0.2.1 198.51.100.2 4096 443\r\n".to_vec(), "Malformed"),
            (long, "TooLong"),
            (huge, "TooLong"),
            (version_2(1, 0x12, &IPV4, 0), "Malformed"),
            (version_2(1, 0x11, &IPV4[..4], 0), "Malformed"),
            (version_2(7, 0x11, &IPV4, 0), "Malformed"),
        ] {
            let found = read(&bytes, 1000).await.0.unwrap_err();
            assert!(matches!(found, Closed(_) | Malformed | Missing | TooLong));
            assert!(is(&found, wanted), "{:?}: {found:?}", String::from_utf8_lossy(&bytes));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            start in prop::sample::select(vec![&b"PROXY "[..], b"PROXY TCP4 ", b"PROXY TCP6 ", SIGNATURE, b""]),
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let _ = parse(&[start, &bytes].concat());
        }
    }
}
