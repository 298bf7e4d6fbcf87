//! What the demo shows: what to try, and how the rotations go. On a terminal the last line lives; elsewhere there
//! is a line for each rotation and nothing that only a terminal understands.

use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use super::Rotations;
use super::gateway::Gateway;
use super::load::Tally;
use super::site::{BOTH, FILES, OCSP, ROTATED, Site, WILD, shell};

pub struct Screen {
    terminal: bool,
    color: bool,
}

impl Screen {
    pub fn new() -> Self {
        let terminal = stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, color: terminal && !plain }
    }

    /// Where everything is, and commands to copy.
    pub fn introduce(&self, site: &Site, gateway: &Gateway, rotate_every: Duration) {
        let (http, https, admin) = (gateway.http(), gateway.https(), gateway.admin());
        let mut text = format!("\n{}\n\n", self.paint("1", "Portcullis demo"));
        for (name, value) in [
            ("HTTP", http.to_string()),
            ("HTTPS", https.to_string()),
            ("Admin", format!("http://{admin}/")),
            ("Files", format!("{}   edit them: every change is live", shell(&site.manifests()))),
            ("Log", shell(&site.log())),
        ] {
            text += &format!("  {}  {value}\n", self.paint("2", &format!("{name:<5}")));
        }
        text += "\nTo try in another terminal:\n";
        for (about, command) in commands(site, gateway) {
            text += &format!("\n  {}\n  {command}\n", self.paint("32", &format!("# {about}")));
        }
        text += &format!(
            "\nReplacing the certificate of {} every {} s while clients connect. Ctrl-C ends the demo.\n\n",
            self.paint("1", ROTATED),
            rotate_every.as_secs_f32()
        );
        self.write(&text);
    }

    /// After each rotation.
    pub fn rotated(&self, rotations: &Rotations, tally: &Tally) {
        match self.terminal {
            true => self.refresh(rotations, tally),
            false => self.write(&format!("{}\n", self.line(rotations, tally))),
        }
    }

    /// Now and then.
    pub fn refresh(&self, rotations: &Rotations, tally: &Tally) {
        if self.terminal {
            // A narrow terminal cuts the line off: one that wrapped could not be written over.
            self.write(&format!("\r\x1b[2K\x1b[?7l{}\x1b[?7h", self.line(rotations, tally)));
        }
    }

    pub fn summarise(&self, rotations: &Rotations, tally: &Tally, elapsed: Duration) {
        let mut text = String::new();
        if self.terminal {
            text += "\n";
        }
        let mut sorted = rotations.latencies.clone();
        sorted.sort();
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        let worst = sorted.last().copied().unwrap_or_default();
        text += &format!(
            "\n{} in {} s\n  rotations    {}, {} failed; served after {} at the median, {} at most\n  \
             handshakes   {}, {} failed, {} with an older certificate than before\n  \
             requests     {}, {} failed\n  connections  {} lost\n",
            self.paint("1", "Done"),
            elapsed.as_secs(),
            sorted.len(),
            self.failures(rotations.failed),
            milliseconds(middle),
            milliseconds(worst),
            tally.handshakes.get(),
            self.failures(tally.failed_handshakes.get()),
            self.failures(tally.went_back.get()),
            tally.requests.get(),
            self.failures(tally.failed_requests.get()),
            self.failures(tally.lost_connections.get()),
        );
        if let Some(error) = &*tally.last_error.borrow() {
            text += &format!("  last error   {error}\n");
        }
        self.write(&text);
    }

    fn line(&self, rotations: &Rotations, tally: &Tally) -> String {
        let (before, now) = rotations.serials;
        let rotation = match rotations.latencies.last() {
            Some(latency) => format!("serial {before:x} -> {now:x}  served after {}", milliseconds(*latency)),
            None => format!("serial {now:x}"),
        };
        format!(
            "  rotations {}  {rotation}  handshakes {} ({} failed)  requests {} ({} failed)",
            rotations.latencies.len(),
            tally.handshakes.get(),
            self.failures(tally.failed_handshakes.get()),
            tally.requests.get(),
            self.failures(tally.failed_requests.get()),
        )
    }

    fn failures(&self, number: u64) -> String {
        self.paint(if number == 0 { "32" } else { "1;31" }, &number.to_string())
    }

    fn paint(&self, code: &str, text: &str) -> String {
        match self.color {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// A reader that has gone away, such as `head`, is no reason to end: the gateway still runs.
    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// What there is to try: what it shows, and the command line.
fn commands(site: &Site, gateway: &Gateway) -> Vec<(&'static str, String)> {
    let (http, https, admin) = (gateway.http(), gateway.https(), gateway.admin());
    let ca = shell(&site.root_certificate());
    let curl = |more: &str| format!("curl --silent --show-error --cacert {ca} --connect-to ::{https} {more}");
    let openssl = |name: &str, more: &str, filter: &str| {
        format!(
            "openssl s_client -connect {https} -servername {name} -CAfile {ca} -verify_return_error {more}\
             </dev/null 2>/dev/null | {filter}"
        )
    };
    let certificate = "openssl x509 -noout -serial -dates -ext subjectAltName";
    let key = "openssl x509 -noout -text | grep 'Public Key Algorithm'";
    vec![
        ("A request, and what the backend saw of it", curl(&format!("https://{ROTATED}/hello"))),
        ("A body, over HTTP/1.1", curl(&format!("--http1.1 --data 'some text' https://{ROTATED}/form"))),
        (
            "Plain HTTP is sent to HTTPS",
            format!("curl --silent --show-error --head --connect-to ::{http} http://{ROTATED}/hello"),
        ),
        (
            "The certificate that is replaced: again and again, another serial",
            openssl(ROTATED, "", certificate),
        ),
        ("Any name below a wildcard", curl(&format!("https://{WILD}/"))),
        (
            "A host with two certificates: who cannot do ECDSA gets the RSA one",
            openssl(BOTH, "-sigalgs rsa_pss_rsae_sha256 ", key),
        ),
        ("and everyone else the ECDSA one", openssl(BOTH, "", key)),
        ("A certificate from PEM files, as certbot writes them", curl(&format!("https://{FILES}/"))),
        (
            "OCSP: the answer of the demo's responder comes with the handshake",
            openssl(OCSP, "-status ", "grep -E 'OCSP [Rr]esponse|Cert Status|Next Update'"),
        ),
        (
            "Readiness, as a load balancer asks for it",
            format!("curl --silent --show-error --fail http://{admin}/readyz"),
        ),
    ]
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
