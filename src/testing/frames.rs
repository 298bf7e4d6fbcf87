//! HTTP/2 frames by hand (RFC 9113), for what a polite client would never send.

use std::net::{SocketAddr, TcpStream};

use super::wire::Wire;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const NO_ERROR: u32 = 0;
pub const PROTOCOL_ERROR: u32 = 1;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const COMPRESSION_ERROR: u32 = 9;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a RST_STREAM or GOAWAY.
    pub fn error_code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    /// The status of a response, where its header block begins with an entry of the static table.
    pub fn status(&self) -> Option<u16> {
        let indexed = [(0x88, 200), (0x89, 204), (0x8b, 304), (0x8c, 400), (0x8d, 404), (0x8e, 500)];
        // A block may begin with a new size of the dynamic table.
        let block = match self.payload.split_first()? {
            (0x20..=0x3e, rest) => rest,
            _ => &self.payload,
        };
        let first = *block.first()?;
        match indexed.iter().find(|(byte, _)| *byte == first) {
            Some((_, status)) => Some(*status),
            // A literal with the indexed name `:status`; its value is Huffman-coded or not.
            None if matches!(first, 0x08 | 0x18 | 0x48) => literal_status(block),
            None => None,
        }
    }
}

fn literal_status(block: &[u8]) -> Option<u16> {
    let length = *block.get(1)?;
    let value = block.get(2..2 + usize::from(length & 0x7f))?;
    if length & 0x80 == 0 {
        return std::str::from_utf8(value).ok()?.parse().ok();
    }
    // Digits 0 to 2 are five bits long, the others six (RFC 7541, appendix B).
    let bits = value.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = 8 * value.len();
    let mut status = 0;
    for _ in 0..3 {
        let five = bits >> left.checked_sub(5)? & 31;
        let digit = if five <= 2 {
            left -= 5;
            five
        } else {
            left = left.checked_sub(6)?;
            ((bits >> left) & 63).checked_sub(0x19)? + 3
        };
        status = status * 10 + digit;
    }
    u16::try_from(status).ok()
}

/// A client after its preface.
pub struct Frames {
    pub wire: Wire,
    /// Acknowledgements were asked for and are to be given.
    pub polite: bool,
}

impl Frames {
    /// Connects, agrees on h2, sends the preface and SETTINGS with these values.
    pub fn connect(address: SocketAddr, sni: &str, settings: &[(u16, u32)]) -> Self {
        let tcp = TcpStream::connect(address).expect("a connection");
        let wire = Wire::client(tcp, Some(sni), &["h2"]).expect("a handshake");
        assert_eq!(wire.alpn().as_deref(), Some("h2"));
        let mut frames = Self { wire, polite: true };
        let _ = frames.wire.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        // Without a dynamic table the gateway's header blocks can be read by themselves.
        let mut payload = vec![0, 1, 0, 0, 0, 0];
        for (id, value) in settings {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        frames.send(SETTINGS, 0, 0, payload);
        frames
    }

    /// Sends one frame. `false` where the gateway has closed.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> bool {
        self.wire.send(frame(kind, flags, stream, payload.as_ref())).is_ok()
    }

    /// HEADERS in one frame.
    pub fn headers(&mut self, stream: u32, fields: &[(&str, &str)], flags: u8) -> bool {
        self.send(HEADERS, flags | END_HEADERS, stream, block(fields))
    }

    /// A GET without a body.
    pub fn get(&mut self, stream: u32, authority: &str, path: &str) -> bool {
        self.headers(stream, &get(authority, path), END_STREAM)
    }

    /// The next frame; `None` at the end. SETTINGS and PING are answered by themselves where `polite`.
    pub fn read(&mut self) -> Option<Frame> {
        let head = self.wire.take(9);
        if head.len() < 9 {
            return None;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes(head[5..9].try_into().expect("four bytes")) & 0x7fff_ffff;
        let frame = Frame { kind: head[3], flags: head[4], stream, payload: self.wire.take(length) };
        if self.polite && frame.flags & ACK == 0 && matches!(frame.kind, SETTINGS | PING) {
            let payload = if frame.kind == PING { frame.payload.clone() } else { Vec::new() };
            self.send(frame.kind, ACK, 0, payload);
        }
        Some(frame)
    }

    /// The next frame that `wanted` is true of; all others are passed over.
    pub fn find(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.read()?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// How `stream` is answered: the status, or the error code of its reset or of the connection's GOAWAY.
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        let about = |frame: &Frame| {
            let error = frame.kind == GOAWAY && frame.error_code() != NO_ERROR;
            error || frame.stream == stream && matches!(frame.kind, HEADERS | RST_STREAM)
        };
        match self.find(about) {
            Some(frame) if frame.kind == HEADERS => Outcome::Status(frame.status().expect("a status")),
            Some(frame) if frame.kind == RST_STREAM => Outcome::Reset(frame.error_code()),
            Some(frame) => Outcome::GoAway(frame.error_code()),
            None => Outcome::Closed,
        }
    }

    /// The error code with which the connection ends.
    pub fn goaway(&mut self) -> Option<u32> {
        let frame = self.find(|frame| frame.kind == GOAWAY && frame.error_code() != NO_ERROR)?;
        Some(frame.error_code())
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Status(u16),
    Reset(u32),
    GoAway(u32),
    Closed,
}

/// The fields of a GET.
pub fn get<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", "GET"), (":scheme", "https"), (":authority", authority), (":path", path)]
}

/// The bytes of one frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A header block of literals that leave the dynamic table alone.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name);
        string(&mut block, value);
    }
    block
}

/// RFC 7541, sections 5.1 and 5.2, without Huffman.
pub fn string(block: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    if length < 127 {
        block.push(u8::try_from(length).expect("below 127"));
    } else {
        block.push(127);
        length -= 127;
        while length >= 128 {
            block.push(u8::try_from(length % 128).expect("below 128") | 128);
            length /= 128;
        }
        block.push(u8::try_from(length).expect("below 128"));
    }
    block.extend(text.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_however_they_are_coded() {
        let frame = |payload: &[u8]| Frame { kind: HEADERS, flags: 0, stream: 1, payload: payload.to_vec() };
        assert_eq!(frame(&[0x88]).status(), Some(200));
        assert_eq!(frame(b"\x48\x03421").status(), Some(421));
        // 502 and 431: 5 = 011011, 0 = 00000, 2 = 00010; 4 = 011010, 3 = 011001, 1 = 00001.
        assert_eq!(frame(&[0x48, 0x82, 0b0110_1100, 0b0000_0010]).status(), Some(502));
        assert_eq!(frame(&[0x48, 0x83, 0b0110_1001, 0b1001_0000, 0b1111_1111]).status(), Some(431));
    }
}
