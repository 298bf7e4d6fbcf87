use super::Context;
use std::process::ExitCode;
#[derive(clap::Args)]
pub struct ServeArgs {}
pub async fn serve(_: Context, _: ServeArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("later")
}
