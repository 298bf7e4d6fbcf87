//! A manifest's text as documents, each parsed by itself: a broken one does not take the others along.
//!
//! Parser messages can quote the text, which may be a Secret; so faults are put in words of our own.

use serde_saphyr::{Error, Options};

use crate::store::objects::Node;

/// One document and the line it starts on, counted from 1.
pub struct Document<'a> {
    pub line: u64,
    pub content: Result<Node<'a>, Fault>,
}

/// Why a document could not be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct Fault {
    pub line: u64,
    pub reason: &'static str,
    pub problem: &'static str,
}

/// The documents of a YAML or JSON text. Empty ones are left out.
pub fn documents(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    for (line, chunk) in chunks(text) {
        if is_blank(chunk) {
            continue;
        }
        if starts_like_json(chunk) && parse_json(line, chunk, &mut documents) {
            continue;
        }
        match parse_yaml(line, chunk) {
            Ok(Node::Null) => {}
            content => documents.push(Document { line, content }),
        }
    }
    documents
}

/// Splits at the lines `---` and `...`, which YAML allows nowhere inside a document, not even in a quoted or
/// block scalar. A `---` line stays with its document, as something may follow on it.
fn chunks(text: &str) -> Vec<(u64, &str)> {
    let mut chunks = Vec::new();
    let (mut start, mut start_line) = (0, 1);
    let mut offset = 0;
    for (line, content) in (1..).zip(text.split_inclusive('\n')) {
        let end = offset + content.len();
        if is_marker(content, "---") {
            chunks.push((start_line, text.get(start..offset).unwrap_or_default()));
            (start, start_line) = (offset, line);
        } else if is_marker(content, "...") {
            chunks.push((start_line, text.get(start..offset).unwrap_or_default()));
            (start, start_line) = (end, line + 1);
        }
        offset = end;
    }
    chunks.push((start_line, text.get(start..).unwrap_or_default()));
    chunks
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Only comments, directives and white space.
fn is_blank(chunk: &str) -> bool {
    let body = chunk.strip_prefix("---").unwrap_or(chunk);
    body.lines().map(str::trim_start).all(|line| line.is_empty() || line.starts_with(['#', '%']))
}

fn starts_like_json(chunk: &str) -> bool {
    chunk.strip_prefix("---").unwrap_or(chunk).trim_start().starts_with('{')
}

/// Reads one or more JSON values; `false` where it is not JSON, though it may still be YAML.
fn parse_json<'a>(line: u64, chunk: &'a str, documents: &mut Vec<Document<'a>>) -> bool {
    let body = chunk.strip_prefix("---").unwrap_or(chunk);
    let mut nodes = Vec::new();
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Node>();
    loop {
        let before = body.get(..values.byte_offset()).unwrap_or_default();
        let at = line + before.matches('\n').count() as u64;
        match values.next() {
            Some(Ok(node)) => nodes.push(Document { line: at, content: Ok(node) }),
            None => break,
            Some(Err(error)) if nodes.is_empty() && !error.is_eof() => return false,
            Some(Err(error)) => {
                let line = line + (error.line() as u64).saturating_sub(1);
                let problem = match error.is_eof() {
                    true => "the JSON text ends too early",
                    false => "what follows is not JSON",
                };
                nodes.push(Document { line, content: Err(Fault { line, reason: "InvalidJson", problem }) });
                break;
            }
        }
    }
    documents.append(&mut nodes);
    true
}

fn parse_yaml(line: u64, chunk: &str) -> Result<Node<'_>, Fault> {
    let mut options = Options::default();
    // A snippet would carry the text around the fault.
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = MOST_REPLAYED;
    serde_saphyr::from_str_with_options(chunk, options).map_err(|error| fault(line, &error))
}

/// Values that aliases may stand for in one document, all in all; real manifests use a handful.
const MOST_REPLAYED: usize = 10_000;

fn fault(first: u64, error: &Error) -> Fault {
    let within = error.location().map_or(1, |location| location.line()).max(1);
    let inner = match error {
        Error::AliasError { error, .. } => error,
        other => other,
    };
    let (reason, problem) = match inner {
        Error::Eof { .. } => ("InvalidYaml", "the YAML text ends too early"),
        Error::DuplicateMappingKey { .. } => ("DuplicateKey", "a key is given twice in one mapping"),
        Error::UnknownAnchor { .. } => ("InvalidYaml", "an alias has no anchor"),
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. } => {
            ("TooComplex", "the document is nested too deeply or has too many values or aliases")
        }
        Error::NonFiniteFloat { .. } => ("InvalidYaml", "a number is infinite or not a number"),
        _ => ("InvalidYaml", "this is not valid YAML; look at indentation, quotes and tabs here"),
    };
    Fault { line: first + within - 1, reason, problem }
}
