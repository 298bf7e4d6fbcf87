//! The `portcullis` command: reads its arguments, installs the one crypto provider, hands over.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli::{ca, certs, check, demo, diff, generation, policy, restart, serve, status, tickets};
use portcullis::telemetry::causes::with_causes;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A TLS ingress gateway with dynamic certificates
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Serve>),
    // An older supervisor starts this program by the older name.
    #[command(hide = true, alias = "worker")]
    Generation(Box<generation::GenerationArgs>),
    Demo(demo::Demo),
    Check(check::Check),
    Diff(diff::DiffArgs),
    /// Compile, try and explain mTLS policies
    Policy(policy::PolicyArgs),
    /// Run and inspect the workload CA
    Ca(ca::CaArgs),
    Certs(certs::CertsArgs),
    Status(status::StatusArgs),
    Restart(restart::RestartArgs),
    Tickets(tickets::TicketsArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // The supervisor does without, and stays small.
    if !matches!(command, Command::Serve(_)) {
        portcullis::tls::install_provider();
    }
    let result = match command {
        Command::Serve(args) => args.run(),
        Command::Generation(args) => args.run(),
        Command::Demo(args) => args.run(),
        Command::Check(args) => args.run(),
        Command::Diff(args) => args.run(),
        Command::Policy(args) => args.run(),
        Command::Ca(args) => args.run(),
        Command::Certs(args) => args.run(),
        Command::Status(args) => args.run(),
        Command::Restart(args) => args.run(),
        Command::Tickets(args) => args.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {}", with_causes(&error));
        ExitCode::FAILURE
    })
}
