//! The `portcullis` binary.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli;

/// A TLS ingress gateway with dynamic certificates.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run and inspect the workload CA.
    Ca(cli::ca::CaArgs),
}

fn main() -> ExitCode {
    // Fails only if a provider is installed already, which would be this one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Arguments::parse().command {
        Command::Ca(args) => cli::ca::run(args),
    }
}
