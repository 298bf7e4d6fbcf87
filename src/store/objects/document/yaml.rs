//! A JSON value as block YAML, laid out as Kubernetes tools do it: keys sorted, lists not indented below their
//! key, text plain where that is unambiguous.

use std::fmt::Write;

use serde_json::Value;

pub(super) fn print(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0, false);
    out
}

/// Writes a value that starts on a line of its own, or, `inline`, behind the dash of a list entry.
fn block(out: &mut String, value: &Value, indent: usize, mut inline: bool) {
    let mut start = |out: &mut String| {
        if !std::mem::take(&mut inline) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
    };
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                start(out);
                scalar(out, &Value::String(key.clone()));
                out.push(':');
                match value {
                    Value::Object(map) if !map.is_empty() => {
                        out.push('\n');
                        block(out, value, indent + 2, false);
                    }
                    Value::Array(list) if !list.is_empty() => {
                        out.push('\n');
                        block(out, value, indent, false);
                    }
                    _ => {
                        out.push(' ');
                        block(out, value, indent, true);
                    }
                }
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                start(out);
                out.push_str("- ");
                block(out, value, indent + 2, true);
            }
        }
        _ => {
            start(out);
            scalar(out, value);
            out.push('\n');
        }
    }
}

fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::String(text) if is_plain(text) => out.push_str(text),
        // JSON text is YAML text in double quotes.
        _ => drop(write!(out, "{value}")),
    }
}

/// Whether YAML reads `text` as this very text without quotes.
fn is_plain(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'/');
    let inner = |b: u8| word(b) || matches!(b, b'.' | b'-' | b'+' | b'=' | b':');
    // A leading dot, dash or plus is only plain in front of a letter that no number has there.
    let first = text.bytes().next().is_some_and(word)
        || text
            .strip_prefix(['-', '.'])
            .is_some_and(|rest| rest.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()));
    first && text.bytes().all(inner) && !text.ends_with(':') && !is_other_type(text)
}

/// Words and numbers that some YAML version takes for something other than text.
fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 10] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", ".inf"];
    let digits = text.trim_start_matches(['-', '.']);
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || text.ends_with(".inf")
        || text.eq_ignore_ascii_case(".nan")
        || digits.bytes().next().is_some_and(|b| b.is_ascii_digit()) && looks_numeric(digits)
}

/// Digits and what may stand between them in a number, a date or a time.
fn looks_numeric(text: &str) -> bool {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0o") || text.starts_with("0b");
    hexadecimal
        || text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'_' | b':' | b'e' | b'E'))
}
