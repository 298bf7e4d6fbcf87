use std::process::ExitCode;

use clap::{Parser, Subcommand};
use portcullis::cli::check::Check;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Check(check) => Ok(check.run()?),
    }
}
