//! The `portcullis` command: reads its arguments, installs the one crypto provider, hands over.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli::{ca, certs, check, demo, diff, policy, restart, serve, status, tickets, worker};
use portcullis::settings::flags::ServeArgs;

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
    /// Run the gateway
    Serve(Box<ServeArgs>),
    /// One worker generation; started by serve
    #[command(hide = true)]
    Worker(Box<ServeArgs>),
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
        Command::Serve(args) => serve::run(*args),
        Command::Worker(args) => worker::run(*args),
        Command::Demo(args) => args.run(),
        Command::Check(args) => args.run(),
        Command::Diff(args) => args.run().map_err(Into::into),
        Command::Policy(args) => Ok(policy::run(args)),
        Command::Ca(args) => Ok(ca::run(args)),
        Command::Certs(args) => args.run().map_err(Into::into),
        Command::Status(args) => args.run().map_err(Into::into),
        Command::Restart(args) => args.run().map_err(Into::into),
        Command::Tickets(args) => args.run().map_err(Into::into),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
