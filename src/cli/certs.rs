//! `portcullis certs`: the certificates that a running gateway serves.

use std::process::ExitCode;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::admin::AdminArgs;
use super::table::{Cell, Table, Tone, colours};
use crate::clock;

/// List the certificates that a running gateway serves
#[derive(Args, Clone, Debug)]
pub struct CertsArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Show what is known about the OCSP staple of each certificate
    #[arg(long)]
    pub ocsp: bool,
}

/// What the table shows of a row of `/api/v1/certificates`. A field that is missing is shown as empty: the
/// gateway may be of another version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Certificate {
    names: Vec<String>,
    secret: Option<String>,
    serial: String,
    algorithm: String,
    not_after: Option<String>,
    hosts: Vec<String>,
    default: bool,
    ocsp: Ocsp,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ocsp {
    state: String,
    this_update: Option<String>,
    next_update: Option<String>,
    next_fetch: Option<String>,
    last_error: Option<String>,
}

impl CertsArgs {
    /// Prints the table to the standard output.
    ///
    /// # Errors
    /// There is no answer, or it cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let answer = self.admin.get("/api/v1/certificates")?;
        self.admin.print(&answer, |answer| match self.ocsp {
            true => staples(answer, colours()),
            false => table(answer, now(), colours()),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn now() -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + clock::since_epoch()
}

fn table(answer: &Value, now: OffsetDateTime, colours: bool) -> String {
    let mut table = Table::new(["NAMES", "SECRET", "SERIAL", "ALGORITHM", "EXPIRES", "OCSP", "HOSTS"]);
    certificates(answer).for_each(|certificate| table.add(cells(&certificate, now)));
    table.render(colours)
}

fn staples(answer: &Value, colours: bool) -> String {
    let head = ["NAMES", "SECRET", "OCSP", "THIS UPDATE", "NEXT UPDATE", "NEXT FETCH", "LAST ERROR"];
    let mut table = Table::new(head);
    certificates(answer).for_each(|certificate| table.add(staple_cells(&certificate)));
    table.render(colours)
}

fn certificates(answer: &Value) -> impl Iterator<Item = Certificate> {
    let rows = answer["certificates"].as_array().map_or(&[][..], Vec::as_slice);
    rows.iter().map(|row| serde_json::from_value(row.clone()).unwrap_or_default())
}

fn staple_cells(certificate: &Certificate) -> [Cell; 7] {
    let Certificate { names, secret, ocsp, .. } = certificate;
    let optional = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or_default());
    [
        some_of(names).into(),
        secret.as_deref().unwrap_or("(generated)").into(),
        staple(&ocsp.state),
        optional(&ocsp.this_update),
        optional(&ocsp.next_update),
        optional(&ocsp.next_fetch),
        optional(&ocsp.last_error),
    ]
}

fn cells(certificate: &Certificate, now: OffsetDateTime) -> [Cell; 7] {
    let Certificate { names, secret, serial, algorithm, not_after, hosts, default, ocsp } = certificate;
    let hosts = match hosts.is_empty() && *default {
        true => "(every other name)".into(),
        false => some_of(hosts),
    };
    [
        some_of(names).into(),
        secret.as_deref().unwrap_or("(generated)").into(),
        shortened(serial).into(),
        algorithm.into(),
        expiry(not_after.as_deref(), now),
        staple(&ocsp.state),
        hosts.into(),
    ]
}

/// As many as a line has room for.
fn some_of(names: &[String]) -> String {
    const MOST: usize = 2;
    let shown = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} +{more}"),
    }
}

fn shortened(serial: &str) -> String {
    const LONGEST: usize = 12;
    let start: String = serial.chars().take(LONGEST).collect();
    if start.len() < serial.len() { start + "…" } else { start }
}

fn expiry(not_after: Option<&str>, now: OffsetDateTime) -> Cell {
    let Some(end) = not_after.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok()) else {
        return "".into();
    };
    let (date, days) = (end.date(), (end - now).whole_days());
    if end < now {
        return Cell::new(format!("{date} (expired)"), Tone::Bad);
    }
    let tone = match days {
        ..7 => Tone::Bad,
        7..21 => Tone::Warning,
        _ => Tone::Plain,
    };
    Cell::new(format!("{date} ({days}d)"), tone)
}

fn staple(state: &str) -> Cell {
    let tone = match state {
        "good" => Tone::Good,
        "revoked" | "error" => Tone::Bad,
        "pending" | "issuer_unknown" | "unknown" => Tone::Warning,
        _ => Tone::Faint,
    };
    Cell::new(state, tone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_row_for_each_certificate() {
        let answer = json!({ "certificates": [
            { "names": ["ingress.local"], "secret": null, "serial": "01", "algorithm": "ECDSA P-256",
              "not_after": "2027-11-30T00:00:00Z", "hosts": [], "default": true, "ocsp": { "state": "no_responder" } },
            { "names": ["a.example", "b.example", "c.example"], "secret": "shop/tls", "serial": "0123456789abcdef",
              "algorithm": "RSA", "not_after": "2026-12-03T12:00:00Z", "hosts": ["a.example"], "default": false,
              "ocsp": { "state": "good" } },
            { "not_after": "2026-11-01T00:00:00Z", "names": ["old.example"], "hosts": ["\u{1b}[2J"] },
            "no object"
        ] });
        let table = table(&answer, datetime!(2026-11-30 00:00 UTC), false);
        insta::assert_snapshot!(table, @r"
        NAMES                    SECRET       SERIAL         ALGORITHM    EXPIRES               OCSP          HOSTS
        ingress.local            (generated)  01             ECDSA P-256  2027-11-30 (365d)     no_responder  (every other name)
        a.example, b.example +1  shop/tls     0123456789ab…  RSA          2026-12-03 (3d)       good          a.example
        old.example              (generated)                              2026-11-01 (expired)                \u{1b}[2J
                                 (generated)
        ");
    }

    #[test]
    fn staples_with_their_times_and_errors() {
        let answer = json!({ "certificates": [
            { "names": ["a.example"], "secret": "shop/tls",
              "ocsp": { "state": "good", "this_update": "2026-11-29T12:00:00Z",
                        "next_update": "2026-12-06T12:00:00Z", "next_fetch": "2026-12-03T00:17:42Z" } },
            { "names": ["b.example"], "secret": "shop/other", "ocsp": { "state": "error", "last_error": "timeout" } },
        ] });
        insta::assert_snapshot!(staples(&answer, false), @r"
        NAMES      SECRET      OCSP   THIS UPDATE           NEXT UPDATE           NEXT FETCH            LAST ERROR
        a.example  shop/tls    good   2026-11-29T12:00:00Z  2026-12-06T12:00:00Z  2026-12-03T00:17:42Z
        b.example  shop/other  error                                                                    timeout
        ");
    }
}
