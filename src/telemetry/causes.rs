//! How an error is told with what caused it.

use anyhow::Error;

/// The error and its causes, outermost first. A cause that the text before it quotes already is left out: most of
/// our errors say themselves why they happened.
pub fn with_causes(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read a.yaml: {source}")]
    struct Quoting {
        source: io::Error,
    }

    #[test]
    fn each_cause_is_told_once() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let quoted = Error::new(Quoting { source: missing() });
        assert_eq!(with_causes(&quoted), "cannot read a.yaml: entity not found");
        let unquoted = Error::new(missing()).context("a.yaml").context("settings");
        assert_eq!(with_causes(&unquoted), "settings: a.yaml: entity not found");
    }
}
