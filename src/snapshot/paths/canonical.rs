//! The canonical form of a path (RFC 3986, section 6.2.2, and what proxies need beyond it).

use std::borrow::Cow;

/// Why a path was refused; a request with such a path is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path does not begin with '/'")]
    NotAbsolute,
    #[error("the path has a '%' that two hexadecimal digits don't follow")]
    Escape,
    #[error("the path has a NUL character")]
    Nul,
    #[error("the path has a control character")]
    Control,
    #[error("the path has a backslash, which some servers take for '/'")]
    Backslash,
    #[error("the path has a '#', which begins a fragment")]
    Fragment,
    #[error("the path has a '?', which begins a query")]
    Query,
    #[error(
        "the path has '.' or '..' beside ';' or an encoded slash or backslash, which some servers resolve"
    )]
    HiddenDots,
    #[error("the path has a '.' or '..' that its parts make together")]
    Dots,
}

/// The canonical form of `raw`, the path of a request target without its query.
///
/// - Escapes of unreserved characters (RFC 3986, section 2.3) are decoded, once; all others stay, in upper
///   case. Characters that a path may not carry unescaped, such as a space, `"` or `ü`, become escapes.
/// - Empty segments are dropped (`//` is `/`), `.` and `..` resolved, never above the root; that goes for
///   their escaped spellings too. A trailing slash stays.
/// - `%2F` and `%5C` stay as they are and never separate segments. Next to `.` or `..` they are refused,
///   because a backend that decodes them would see another path than was matched.
/// - `;` is a character like any other: `/admin;x` is not `/admin`, and a prefix `/admin` isn't for it. Only
///   after `.` or `..` it is refused, because servers that cut off parameters would resolve the dots.
/// - NUL (`%00` too), control characters, `\`, `#`, `?` and malformed escapes are refused.
///
/// The canonical form of a canonical path is that path. Borrows where `raw` is canonical already, as it
/// nearly always is.
pub fn canonical_path(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if !raw.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_plainly_canonical(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    let canonical = resolve(&normalise_escapes(raw)?)?;
    Ok(if canonical == raw { Cow::Borrowed(raw) } else { Cow::Owned(canonical) })
}

/// The canonical form of a path that was put together of pieces of another one, such as the groups of a pattern. Where
/// the pieces make a `.` or `..` it is refused and not resolved: it would lead out of the place that they were put in.
pub fn assembled_path(raw: &str) -> Result<Cow<'_, str>, PathError> {
    if raw.starts_with('/') && is_plainly_canonical(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    match normalise_escapes(raw)?.split('/').any(|segment| matches!(segment, "." | "..")) {
        true => Err(PathError::Dots),
        false => canonical_path(raw),
    }
}

/// Quick and sure where it says yes; most paths have neither escapes nor segments that begin with a dot.
fn is_plainly_canonical(raw: &str) -> bool {
    let mut previous = 0;
    for byte in raw.bytes() {
        let suspicious = match byte {
            b'/' | b'.' => previous == b'/',
            _ => !is_path_byte(byte),
        };
        if suspicious {
            return false;
        }
        previous = byte;
    }
    true
}

/// Decodes escapes of unreserved characters, writes the others in upper case and escapes what must be.
fn normalise_escapes(raw: &str) -> Result<String, PathError> {
    let mut out = String::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (hex_digit(bytes.next())?, hex_digit(bytes.next())?);
                match high << 4 | low {
                    0 => return Err(PathError::Nul),
                    decoded if is_unreserved(decoded) => out.push(char::from(decoded)),
                    decoded => push_escape(&mut out, decoded),
                }
            }
            0 => return Err(PathError::Nul),
            b'\\' => return Err(PathError::Backslash),
            b'#' => return Err(PathError::Fragment),
            b'?' => return Err(PathError::Query),
            byte if byte.is_ascii_control() => return Err(PathError::Control),
            byte if is_path_byte(byte) => out.push(char::from(byte)),
            byte => push_escape(&mut out, byte),
        }
    }
    Ok(out)
}

/// Drops empty and `.` segments and resolves `..` (RFC 3986, section 5.2.4).
fn resolve(path: &str) -> Result<String, PathError> {
    let mut out = String::with_capacity(path.len());
    let mut ends_in_slash = false;
    for segment in path.split('/') {
        ends_in_slash = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            _ if hides_dots(segment) => return Err(PathError::HiddenDots),
            _ => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    if ends_in_slash {
        out.push('/');
    }
    Ok(out)
}

/// Whether decoding `%2F` and `%5C` in `segment`, or cutting off what follows `;`, would bring a `.` or `..`
/// segment to light.
fn hides_dots(segment: &str) -> bool {
    let mut parts = segment.split("%2F").flat_map(|part| part.split("%5C"));
    parts.any(|part| matches!(part.split(';').next(), Some("." | "..")))
}

/// `pchar` of RFC 3986, section 3.3, without escapes, and `/`.
fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'/' | b':' | b'@' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        )
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex_digit(byte: Option<u8>) -> Result<u8, PathError> {
    let digit = byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(PathError::Escape)?;
    u8::try_from(digit).map_err(|_| PathError::Escape)
}

fn push_escape(out: &mut String, byte: u8) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    out.push('%');
    out.push(DIGITS[usize::from(byte >> 4)]);
    out.push(DIGITS[usize::from(byte & 15)]);
}
