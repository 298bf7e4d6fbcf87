//! `portcullis policy evaluate`.

use std::fs;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::workload::WorkloadArgs;
use super::{PolicyInput, print, report, wrong_usage};
use crate::snapshot::policies::{Connection, WorkloadPolicies};
use crate::tls::spiffe::{SpiffeError, SpiffeId};

#[derive(Args, Debug)]
pub(super) struct EvaluateArgs {
    #[command(flatten)]
    input: PolicyInput,

    #[command(flatten)]
    workload: WorkloadArgs,

    /// The peer's verified identity, `spiffe://TRUST-DOMAIN/ns/NAMESPACE/sa/NAME`, also without the scheme; without it,
    /// plaintext.
    #[arg(long, value_name = "IDENTITY", value_parser = identity)]
    principal: Option<SpiffeId>,

    /// The peer's address.
    #[arg(long, value_name = "IP", default_value_t = UNSPECIFIED)]
    source: IpAddr,

    /// The workload's address.
    #[arg(long, value_name = "IP", default_value_t = UNSPECIFIED)]
    destination: IpAddr,

    /// The workload's port.
    #[arg(long, value_name = "PORT", required_unless_present = "connections")]
    port: Option<u16>,

    /// Decide many connections: a file (or '-') with one JSON object a line (principal, source, destination,
    /// port). Prints one JSON object for each (allowed, policy, reason).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["principal", "source", "destination", "port"])]
    connections: Option<PathBuf>,
}

/// What an address is that nobody told.
const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(super) fn run(args: EvaluateArgs) -> anyhow::Result<ExitCode> {
    if args.connections.as_deref() == Some(Path::new("-")) && args.input.is_stdin() {
        return Ok(wrong_usage("policies and connections cannot both come from stdin"));
    }
    let documents = args.input.read(args.workload.default_namespace())?;
    let mesh = args.input.mesh();
    let compiled = documents.compile(&mesh);
    let workload = match args.workload.choose(&documents, &mesh) {
        Ok(workload) => workload,
        Err(ambiguous) => return Ok(wrong_usage(&ambiguous)),
    };
    // What is wrong with a policy shows in the decisions, and is told; it's no failure of this command.
    let _ = report(&documents, &compiled);
    let policies = workload.policies(&documents, &compiled);
    if workload.name.is_none() && documents.objects().next().is_some() {
        eprintln!("info: without --workload, this is about {workload}");
    }
    match &args.connections {
        Some(path) => evaluate_lines(&policies, path),
        None => evaluate_one(&policies, &args),
    }
}

fn evaluate_one(policies: &WorkloadPolicies, args: &EvaluateArgs) -> anyhow::Result<ExitCode> {
    let connection = Connection {
        principal: args.principal.as_ref(),
        source: args.source,
        destination: args.destination,
        port: args.port.unwrap_or_default(),
    };
    let decision = policies.decide(&connection);
    let word = if decision.allowed { "allowed" } else { "denied" };
    let policy = decision.policy.map_or("none".into(), ToString::to_string);
    print(&format!("{word}\n  policy: {policy}\n  reason: {decision}\n"))?;
    for (policy, matches) in policies.dry_run(&connection) {
        let matches = if matches { "matches" } else { "does not match" };
        print(&format!("  dry run: {} {} {matches}\n", policy.action, policy.name))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One answer a line, in the order of the connections. A line that is no connection is answered too, so that
/// answers stay beside their questions: it is not allowed.
fn evaluate_lines(policies: &WorkloadPolicies, path: &Path) -> anyhow::Result<ExitCode> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin().lock()),
        false => fs::read_to_string(path),
    };
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut code = ExitCode::SUCCESS;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str::<Line>(line) {
            Ok(line) => serde_json::to_writer(&mut out, &policies.decide(&line.connection()))?,
            Err(error) => {
                code = ExitCode::FAILURE;
                eprintln!("error: {}:{}: this is not a connection: {error}", path.display(), at + 1);
                let reason = format!("this is not a connection: {error}");
                serde_json::to_writer(
                    &mut out,
                    &json!({"allowed": false, "policy": null, "reason": reason}),
                )?;
            }
        }
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(code)
}

/// A connection as one line of JSON has it.
#[derive(Deserialize)]
struct Line {
    #[serde(default, deserialize_with = "optional_identity")]
    principal: Option<SpiffeId>,
    #[serde(default = "unspecified")]
    source: IpAddr,
    #[serde(default = "unspecified")]
    destination: IpAddr,
    port: u16,
}

impl Line {
    fn connection(&self) -> Connection<'_> {
        let Self { principal, source, destination, port } = self;
        Connection { principal: principal.as_ref(), source: *source, destination: *destination, port: *port }
    }
}

fn unspecified() -> IpAddr {
    UNSPECIFIED
}

/// Null and the empty text are no identity.
fn optional_identity<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SpiffeId>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => identity(text).map(Some).map_err(serde::de::Error::custom),
    }
}

/// An identity with its scheme or, as principals are written in policies, without it.
fn identity(text: &str) -> Result<SpiffeId, SpiffeError> {
    match text.starts_with("spiffe://") {
        true => SpiffeId::parse(text),
        false => SpiffeId::parse(&format!("spiffe://{text}")),
    }
}
