//! What the commands print: text for people, JSON for programs, errors on standard error.

use std::process::ExitCode;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::ca::certificate::Certificate;
use crate::telemetry::causes::with_causes;

#[derive(Clone, Copy)]
pub struct Output {
    pub json: bool,
}

impl Output {
    /// Prints `value` as JSON, or what `text` makes of it.
    pub fn print<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.json {
            true => println!("{}", serde_json::to_string_pretty(value)?),
            false => print!("{}", text(value)),
        }
        Ok(())
    }

    /// Prints an error as JSON and says that the command failed; where people read, telling it is left to the caller.
    pub fn tell(self, error: anyhow::Error) -> anyhow::Result<ExitCode> {
        if !self.json {
            return Err(error);
        }
        eprintln!("{}", serde_json::json!({ "error": with_causes(&error) }));
        Ok(ExitCode::FAILURE)
    }
}

/// A certificate for people and programs.
#[derive(Serialize)]
pub struct CertificateView {
    pub subject: String,
    pub serial: String,
    pub not_before: String,
    pub not_after: String,
    pub seconds_left: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uris: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<String>,
}

impl CertificateView {
    pub fn new(certificate: &Certificate, now: OffsetDateTime) -> Self {
        Self {
            subject: certificate.subject_text.clone(),
            serial: certificate.serial.clone(),
            not_before: moment(certificate.not_before),
            not_after: moment(certificate.not_after),
            seconds_left: (certificate.not_after - now).whole_seconds(),
            uris: certificate.uris.clone(),
            dns_names: certificate.dns_names.clone(),
        }
    }

    /// One line: serial, end and time left.
    pub fn line(&self) -> String {
        let names = match self.subject.as_str() {
            "" => self.uris.iter().chain(&self.dns_names).cloned().collect::<Vec<_>>().join(" "),
            subject => subject.to_owned(),
        };
        format!("{names}  serial {}  until {} ({})", self.serial, self.not_after, left(self.seconds_left))
    }
}

pub fn moment(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_default()
}

fn left(seconds: i64) -> String {
    match seconds {
        i64::MIN..0 => "ended".to_owned(),
        0..7200 => format!("{} min left", seconds / 60),
        7200..172_800 => format!("{} h left", seconds / 3600),
        _ => format!("{} days left", seconds / 86_400),
    }
}
