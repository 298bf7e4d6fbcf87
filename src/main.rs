use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile, try and explain mTLS policies.
    Policy(cli::policy::PolicyArgs),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Policy(args) => cli::policy::run(args),
    }
}
