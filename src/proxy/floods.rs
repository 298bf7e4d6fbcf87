//! Watches what a client sends over HTTP/2 for frames that cost us work and carry nothing: PING, SETTINGS,
//! PRIORITY, resets, empty DATA, tiny window updates and the like. Each is legitimate; thousands for no request
//! are an attack (CVE-2019-9512, -9515, -9518 and their kin), and the h2 crate answers most of them for ever.
//!
//! Called with every byte that is read, in whatever pieces; looks at the nine bytes that begin each frame and
//! skips the rest. It tells from them, too, whether a header block has begun and is not over.

use std::mem;
use std::time::Duration;

use crate::net::deadlines::{Deadlines, Tick};

/// Frames without content that a connection may send in a period, on top of those that its requests pay for.
const ALLOWANCE: u32 = 1000;
/// What each request pays for: its window updates, its reset, a ping.
const PER_REQUEST: u32 = 20;
/// Content that pays for one frame: an upload in small pieces is slow, not hostile.
const PER_FRAME: u32 = 64;
/// What we send pays for one frame each: a client with small windows makes room for it bit by bit.
const PER_UPDATE: usize = 4096;
const PERIOD: Duration = Duration::from_secs(10);

const HEAD: usize = 9;
const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The frames of one connection.
pub struct FloodWatch {
    head: [u8; HEAD],
    /// Bytes of the next head that have come.
    have: usize,
    /// Bytes until the next head.
    skip: usize,
    /// Header blocks that have begun, and where the last of them stands.
    blocks: u64,
    block: Block,
    left: u32,
    /// Bytes that were sent and have not paid for anything yet.
    sent: usize,
    since: Tick,
    deadlines: Deadlines,
}

/// Where a header block stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// More frames of it are to come.
    Open,
    /// It ends with the frame that has begun.
    Ending,
    Over,
}

/// The client sends too many frames that carry nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many HTTP/2 frames that carry nothing")]
pub struct Flood;

impl FloodWatch {
    pub fn new(deadlines: &Deadlines) -> Self {
        Self {
            head: [0; HEAD],
            have: 0,
            skip: PREFACE,
            blocks: 0,
            block: Block::Over,
            left: ALLOWANCE,
            sent: 0,
            since: deadlines.now(),
            deadlines: deadlines.clone(),
        }
    }

    /// Looks at the next bytes of the connection.
    pub fn see(&mut self, mut bytes: &[u8]) -> Result<(), Flood> {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let (taken, rest) = bytes.split_at_checked(HEAD - self.have).unwrap_or((bytes, &[]));
            if let Some(room) = self.head.get_mut(self.have..self.have + taken.len()) {
                room.copy_from_slice(taken);
            }
            self.have += taken.len();
            bytes = rest;
            if self.have == HEAD {
                self.have = 0;
                self.count()?;
            }
        }
        Ok(())
    }

    /// The number of the header block that is still coming in, if one is.
    pub fn open_block(&self) -> Option<u64> {
        match self.block {
            Block::Over => None,
            Block::Ending if self.skip == 0 => None,
            Block::Open | Block::Ending => Some(self.blocks),
        }
    }

    /// Takes into account what was sent to the client.
    pub fn pay(&mut self, bytes: usize) {
        self.sent += bytes;
        let earned = u32::try_from(self.sent / PER_UPDATE).unwrap_or(ALLOWANCE);
        self.sent %= PER_UPDATE;
        self.left = self.left.saturating_add(earned).min(ALLOWANCE);
    }

    fn count(&mut self) -> Result<(), Flood> {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]);
        self.skip = length as usize;
        self.blocks += u64::from(kind == HEADERS);
        self.block = match kind {
            HEADERS | CONTINUATION if flags & END_HEADERS != 0 => Block::Ending,
            HEADERS | CONTINUATION => Block::Open,
            // In a block it is an error, which ends the connection.
            _ => Block::Over,
        };
        let earned = match kind {
            HEADERS => PER_REQUEST,
            DATA if length >= PER_FRAME || flags & END_STREAM != 0 => 1 + length / PER_FRAME,
            _ => 0,
        };
        if earned > 0 {
            self.left = (self.left + earned.min(PER_REQUEST)).min(ALLOWANCE);
            return Ok(());
        }
        if self.left == 0 {
            let now = self.deadlines.now();
            if now.since(mem::replace(&mut self.since, now)) < PERIOD {
                return Err(Flood);
            }
            self.left = ALLOWANCE;
        }
        self.left -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[length[1], length[2], length[3], kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn see(frames: &[Vec<u8>], cut: usize) -> Result<(), Flood> {
        let mut watch = FloodWatch::new(&Deadlines::new());
        let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frames.concat()].concat();
        bytes.chunks(cut).try_for_each(|piece| watch.see(piece))
    }

    #[test]
    fn floods_are_noticed_however_they_are_cut() {
        for (kind, payload) in
            [(PING, &[0; 8][..]), (4, b""), (0, b""), (0, b"x"), (3, &[0; 4]), (CONTINUATION, b"")]
        {
            let flood = vec![frame(kind, 0, payload); 1001];
            for cut in [1, 7, 10, 4096] {
                assert_eq!(see(&flood[..1000], cut), Ok(()), "{kind}");
                assert_eq!(see(&flood, cut), Err(Flood), "{kind}");
            }
        }
    }

    #[test]
    fn requests_and_uploads_pay_for_their_frames() {
        let request =
            [frame(1, 5, &[0x82; 20]), frame(WINDOW_UPDATE, 0, &[0, 0, 1, 0]), frame(3, 0, &[0; 4])].concat();
        assert_eq!(see(&vec![request; 20_000], 1000), Ok(()));
        let upload = [frame(0, 0, &[0; 16_384]), frame(PING, 0, &[0; 8])].concat();
        assert_eq!(see(&vec![upload; 500], 5000), Ok(()));
    }

    #[test]
    fn what_is_sent_pays_for_the_room_that_it_takes() {
        let mut watch = FloodWatch::new(&Deadlines::new());
        watch.skip = 0;
        // Half a window of 64 KiB at a time, for the stream and for the connection.
        let updates = frame(WINDOW_UPDATE, 0, &[0, 0, 0x80, 0]).repeat(2);
        for _ in 0..20_000 {
            watch.pay(0x8000);
            assert_eq!(watch.see(&updates), Ok(()));
        }
        // An answer to each ping pays for none of them.
        let pings = frame(PING, 0, &[0; 8]);
        let refused = (0..2000).any(|_| {
            watch.pay(17);
            watch.see(&pings).is_err()
        });
        assert!(refused);
    }

    #[test]
    fn a_header_block_is_open_until_its_last_byte() {
        let mut watch = FloodWatch::new(&Deadlines::new());
        watch.skip = 0;
        let first = [frame(HEADERS, 0, &[0x82; 3]), frame(CONTINUATION, END_HEADERS, &[0x84; 2])].concat();
        let (last, before) = first.split_last().unwrap();
        for byte in before {
            watch.see(&[*byte]).unwrap();
        }
        assert_eq!(watch.open_block(), Some(1));
        watch.see(&[*last]).unwrap();
        assert_eq!(watch.open_block(), None);
        // Data between blocks is in none of them, and the next block is another.
        let second = [frame(0, 0, &[0; 100]), frame(HEADERS, END_HEADERS, &[0x82; 3])].concat();
        watch.see(&second[..50]).unwrap();
        assert_eq!(watch.open_block(), None);
        watch.see(&second[50..second.len() - 1]).unwrap();
        assert_eq!(watch.open_block(), Some(2));
    }

    #[test]
    fn time_forgives() {
        let deadlines = Deadlines::new();
        let mut watch = FloodWatch::new(&deadlines);
        watch.skip = 0;
        let pings = frame(PING, 0, &[0; 8]).repeat(1000);
        assert_eq!(watch.see(&pings), Ok(()));
        deadlines.advance(101);
        assert_eq!(watch.see(&pings), Ok(()));
        assert_eq!(watch.see(&pings), Err(Flood));
    }
}
