use super::{Context, output::Output};
use std::process::ExitCode;
#[derive(clap::Args)]
pub struct CsrArgs {}
pub async fn csr(_: &Context, _: CsrArgs, _: Output) -> anyhow::Result<ExitCode> {
    anyhow::bail!("later")
}
