//! `portcullis status`: how a running gateway is.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::table::{Cell, Table, Tone, coloured, colours};

/// Show how a running gateway is: readiness, generation, what waits for a restart
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub admin: AdminArgs,
}

impl StatusArgs {
    /// Prints the status to the standard output.
    ///
    /// # Errors
    /// There is no answer, or it cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let answer = self.admin.get("/api/v1/status")?;
        self.admin.print(&answer, |answer| report(answer, colours()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn report(status: &Value, colours: bool) -> String {
    let mut facts = Table::new(["WHAT", "IS"]);
    for (what, is) in facts_of(status) {
        facts.add([what.into(), is]);
    }
    let mut text = facts.render(colours);
    let mut section = |table: String| {
        text.push('\n');
        text.push_str(&table);
    };

    let mut workers =
        Table::new(["WORKER", "PID", "CONNECTIONS", "REQUESTS", "IN FLIGHT", "HANDSHAKES", "FAILED"]);
    for worker in list(status, "workers") {
        let number = |key| Cell::from(number(worker, key).to_string());
        let handshakes = self::number(worker, "handshakes_full") + self::number(worker, "handshakes_resumed");
        workers.add([
            number("worker"),
            number("pid"),
            number("connections"),
            number("requests"),
            number("requests_in_flight"),
            handshakes.to_string().into(),
            number("handshakes_failed"),
        ]);
    }
    section(workers.render(colours));

    // One that serves is what the rest is about already.
    if list(status, "generations").len() > 1 {
        let mut generations = Table::new(["GENERATION", "PID", "STATE", "CONNECTIONS", "WAITING FOR"]);
        for generation in list(status, "generations") {
            let connections = generation["connections"].as_u64().map_or(String::new(), |n| n.to_string());
            generations.add([
                number(generation, "generation").to_string().into(),
                number(generation, "pid").to_string().into(),
                string(generation, "state").into(),
                connections.into(),
                string(generation, "waiting_for").into(),
            ]);
        }
        section(generations.render(colours));
    }
    if !list(status, "pending_restart").is_empty() {
        let mut pending = Table::new(["PENDING RESTART", "REASON"]);
        for change in list(status, "pending_restart") {
            pending.add([Cell::new(string(change, "key"), Tone::Warning), string(change, "reason").into()]);
        }
        section(pending.render(colours));
    }
    for (what, problem) in [
        ("the last restart failed", &status["last_restart_error"]),
        ("the last edit of the settings was refused", &status["settings"]["error"]),
    ] {
        if let Some(problem) = problem.as_str() {
            // Foreign text: escaped as a cell is.
            let mut lines = Table::new([what]);
            problem.lines().for_each(|line| lines.add([Cell::new(line, Tone::Bad)]));
            section(lines.render(colours));
        }
    }
    let mut hint = String::new();
    if number(&status["diagnostics"], "error") > 0 {
        let look = "Objects with errors are listed at /api/v1/diagnostics and on the web page.";
        let _ = write!(hint, "\n{}\n", coloured(look, Tone::Faint, colours));
    }
    text + &hint
}

fn facts_of(status: &Value) -> Vec<(&'static str, Cell)> {
    let ready = match status["ready"].as_bool() {
        Some(true) => Cell::new("yes", Tone::Good),
        _ => Cell::new(format!("no: {}", string(status, "not_ready_because")), Tone::Bad),
    };
    let findings = &status["diagnostics"];
    let (errors, warnings) = (number(findings, "error"), number(findings, "warning"));
    let tone = if errors > 0 { Tone::Bad } else { Tone::Plain };
    let counts = format!("{errors} error, {warnings} warning, {} info", number(findings, "info"));
    let count = |key| Cell::from(number(status, key).to_string());
    let mut facts = vec![
        ("ready", ready),
        ("version", string(status, "version").into()),
        ("generation", count("generation")),
        ("uptime", uptime(number(status, "uptime_seconds")).into()),
        ("hosts", count("hosts")),
        ("routes", count("routes")),
        ("certificates", count("certificates")),
        (
            "backends",
            format!("{} ({} endpoints)", number(status, "clusters"), number(status, "endpoints")).into(),
        ),
        ("requests", count("requests")),
        ("diagnostics", Cell::new(counts, tone)),
    ];
    facts.extend(policies(&status["policies"]));
    let crash = &status["last_crash"];
    if let Some(reason) = crash["reason"].as_str() {
        facts.push(("last crash", format!("{}: {reason}", string(crash, "at")).into()));
    }
    if let Some(leader) = status["leader"].as_bool() {
        facts.push(("leader", if leader { "yes" } else { "no" }.into()));
    }
    for source in list(status, "sources") {
        facts.push(("source", describe_source(source)));
    }
    facts
}

/// Nothing where there are no policies.
fn policies(policies: &Value) -> Vec<(&'static str, Cell)> {
    let count = |key| number(policies, key);
    let (dangling, rejected) = (count("dangling"), count("rejected"));
    if count("policies") + dangling + rejected == 0 {
        return Vec::new();
    }
    let mut applied = format!("{} for {} workloads", count("policies"), count("workloads"));
    if count("dry_run") > 0 {
        let _ = write!(applied, ", {} in dry run", count("dry_run"));
    }
    let mut facts = vec![("policies", applied.into()), ("denied", count("denied").to_string().into())];
    if dangling > 0 {
        let keys: Vec<_> = list(policies, "dangling_keys").iter().filter_map(Value::as_str).collect();
        let words = format!("{dangling} keys that name no policy, each denies: {}", keys.join(", "));
        facts.push(("dangling", Cell::new(words, Tone::Bad)));
    }
    if rejected > 0 {
        let words = format!("{rejected} policies, see /api/v1/policies");
        facts.push(("rejected", Cell::new(words, Tone::Bad)));
    }
    facts
}

fn describe_source(source: &Value) -> Cell {
    let name = string(source, "name");
    match (source["synced"].as_bool(), source["last_error"].as_str()) {
        (_, Some(error)) => match source["stale_since"].as_str() {
            Some(since) => Cell::new(format!("{name}: as kept on disk at {since}: {error}"), Tone::Bad),
            None => Cell::new(format!("{name}: {error}"), Tone::Bad),
        },
        (Some(true), None) => format!("{name}: listed").into(),
        _ => Cell::new(format!("{name}: not listed yet"), Tone::Warning),
    }
}

fn uptime(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, ..) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

// The gateway may be of another version: what is missing is shown as empty or 0.

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_an_operator_asks_first() {
        let status = json!({
            "version": "0.1.0", "generation": 7, "ready": false, "not_ready_because": "draining",
            "uptime_seconds": 3725, "hosts": 2, "routes": 3, "certificates": 4, "clusters": 5, "endpoints": 6,
            "requests": 8, "diagnostics": { "error": 1, "warning": 2, "info": 0 },
            "policies": { "workloads": 9, "policies": 4, "dry_run": 1, "dangling": 2, "dangling_keys": ["shop/a", "shop/b"],
                "rejected": 3, "denied": 5 },
            "pending_restart": [{ "key": "http-port", "reason": "listeners are opened before workers start" }],
            "last_restart_error": null,
            "last_crash": { "reason": "generation 2: killed", "at": "2026-01-02T03:04:05Z" },
            "settings": { "error": "settings.yaml:2: \u{1b}[2J\nsettings.yaml:3: foo: unknown setting" },
            "sources": [
                { "name": "directory", "synced": true, "last_error": null },
                { "name": "secrets", "last_error": "gone", "stale_since": "2026-01-02T03:04:05Z" },
            ],
            "workers": [{ "worker": 0, "pid": 42, "connections": 1, "requests": 8, "requests_in_flight": 1,
                "handshakes_full": 2, "handshakes_resumed": 3, "handshakes_failed": 4 }],
        });
        insta::assert_snapshot!(report(&status, false), @r"
        WHAT          IS
        ready         no: draining
        version       0.1.0
        generation    7
        uptime        1h 2m
        hosts         2
        routes        3
        certificates  4
        backends      5 (6 endpoints)
        requests      8
        diagnostics   1 error, 2 warning, 0 info
        policies      4 for 9 workloads, 1 in dry run
        denied        5
        dangling      2 keys that name no policy, each denies: shop/a, shop/b
        rejected      3 policies, see /api/v1/policies
        last crash    2026-01-02T03:04:05Z: generation 2: killed
        source        directory: listed
        source        secrets: as kept on disk at 2026-01-02T03:04:05Z: gone

        WORKER  PID  CONNECTIONS  REQUESTS  IN FLIGHT  HANDSHAKES  FAILED
        0       42   1            8         1          5           4

        PENDING RESTART  REASON
        http-port        listeners are opened before workers start

        the last edit of the settings was refused
        settings.yaml:2: \u{1b}[2J
        settings.yaml:3: foo: unknown setting

        Objects with errors are listed at /api/v1/diagnostics and on the web page.
        ");
    }

    #[test]
    fn an_answer_of_another_version_is_no_panic() {
        for status in [json!({}), json!([]), json!(null), json!({ "workers": [1], "sources": 2 })] {
            assert!(report(&status, true).contains("ready"));
        }
    }
}
