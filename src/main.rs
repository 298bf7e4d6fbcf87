//! The `portcullis` command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli::diff::DiffArgs;

/// A TLS ingress gateway with dynamic certificates
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Diff(DiffArgs),
}

fn main() -> ExitCode {
    let Cli { command: Command::Diff(diff) } = Cli::parse();
    diff.run().unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}
