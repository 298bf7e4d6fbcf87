//! PEM blocks (RFC 7468) as people really have them: CRLF, blanks around and within lines, byte-order marks, text
//! between blocks, files joined without a newline, RFC 1421 headers of encrypted keys.
//!
//! Read here and not by a library, because operators want the line of a mistake and an encrypted key must be
//! told from a damaged one. Called by `chain` and `private`; the text stays bounded by their limit.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::error::{KeyPairError, KeyPairWarning, Part, PemProblem};

/// One block, its contents not yet decoded.
pub(super) struct Block<'a> {
    /// What stands between `-----BEGIN ` and the dashes.
    pub label: &'a [u8],
    /// Line of the BEGIN, from 1.
    pub line: usize,
    /// The header says that the contents are encrypted (RFC 1421, `Proc-Type: 4,ENCRYPTED`).
    pub encrypted: bool,
    /// The lines of base64, blanks still within them.
    body: Vec<&'a [u8]>,
    part: Part,
}

impl Block<'_> {
    /// The contents. The buffers are made as large as they get, for what a growing one leaves behind is not
    /// wiped.
    pub fn der(&self) -> Result<Zeroizing<Vec<u8>>, KeyPairError> {
        let length = self.body.iter().map(|line| line.len()).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        text.extend(self.body.iter().copied().flatten().filter(|byte| !byte.is_ascii_whitespace()));
        let mut der = Zeroizing::new(vec![0; text.len().div_ceil(4) * 3]);
        let length = BASE64.decode_slice(&*text, &mut der).map_err(|_| KeyPairError::PemInvalid {
            part: self.part,
            line: self.line,
            problem: PemProblem::Base64,
        })?;
        der.truncate(length);
        Ok(der)
    }

    pub fn is_private_key(&self) -> bool {
        self.label.ends_with(b"PRIVATE KEY")
    }
}

/// Some encoders leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// UTF-8's byte-order mark: editors put it before a text, and joining texts puts it into the middle of one.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// All blocks of `text`, whatever their label.
pub(super) fn blocks<'a>(
    text: &'a [u8],
    part: Part,
    warnings: &mut Vec<KeyPairWarning>,
) -> Result<Vec<Block<'a>>, KeyPairError> {
    let invalid = |line, problem| KeyPairError::PemInvalid { part, line, problem };
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    let mut in_header = false;

    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let mut line = bare(line);
        if let Some(mut block) = open.take() {
            let Some(rest) = line.strip_prefix(END) else {
                if line.starts_with(BEGIN) {
                    return Err(invalid(block.line, PemProblem::NotEnded));
                }
                block.take_line(line, &mut in_header);
                open = Some(block);
                continue;
            };
            let rest = rest.strip_prefix(block.label).and_then(|rest| rest.strip_prefix(DASHES));
            line = rest.map(bare).ok_or(invalid(number, PemProblem::OtherEnd))?;
            blocks.push(block);
        }
        if let Some(rest) = line.strip_prefix(BEGIN) {
            let label = rest.strip_suffix(DASHES).filter(|label| !label.contains(&b'-'));
            let label = label.ok_or(invalid(number, PemProblem::BeginLine))?;
            open = Some(Block { label, line: number, encrypted: false, body: Vec::new(), part });
            in_header = false;
        } else if line.windows(BEGIN.len()).any(|part| part == BEGIN) {
            warnings.push(KeyPairWarning::BeginWithin { part, line: number });
        }
    }
    match open {
        Some(block) => Err(invalid(block.line, PemProblem::NotEnded)),
        None => Ok(blocks),
    }
}

/// The line without blanks and byte-order mark around it.
fn bare(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(MARK).map_or(line, <[u8]>::trim_ascii)
}

impl<'a> Block<'a> {
    /// Takes one line between BEGIN and END. A header, if any, comes first and ends with a blank line.
    fn take_line(&mut self, line: &'a [u8], in_header: &mut bool) {
        if self.body.is_empty() && line.contains(&b':') {
            *in_header = true;
            self.encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
        } else if line.is_empty() {
            *in_header = false;
        } else if !*in_header {
            self.body.push(line);
        }
    }
}
