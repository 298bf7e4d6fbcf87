//! `ca init`, `show`, `rotate` and `rotate-key`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::output::{CertificateView, Output, moment};
use super::{Context, duration, now};
use crate::ca::authority::Authority;
use crate::ca::distribution;
use crate::ca::roots::rollover::{self, Phase};
use crate::ca::roots::{self, RolloverState, SelfSigned};

/// From here on the end of a root is announced loudly.
const WARN_BEFORE_END: time::Duration = time::Duration::days(30);

/// The longest life that a service gives by default.
const LEAST_SETTLE: Duration = Duration::from_secs(90 * 24 * 3600);

#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    settle: Settle,
}

#[derive(Args)]
pub struct RotateArgs {
    /// Renew only if the root is in the last 20 % of its life.
    #[arg(long)]
    if_due: bool,
}

#[derive(Args)]
pub struct RotateKeyArgs {
    #[command(flatten)]
    settle: Settle,
    /// Enter the next phase although the present one has not reached everyone.
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
struct Settle {
    /// How long callers of the CSR service may hold on to certificates of the phase before. By default the longest life
    /// that the service ever gave, and 90 days at least.
    #[arg(long = "settle", value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
}

impl Settle {
    fn resolve(&self, root: &SelfSigned) -> Duration {
        let noted = root.material.longest_life().unwrap_or_default();
        self.duration.unwrap_or_else(|| noted.max(LEAST_SETTLE))
    }
}

#[derive(Serialize)]
struct RootView {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    signing: CertificateView,
    chain: Vec<CertificateView>,
    roots: Vec<CertificateView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rollover: Option<RolloverView>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct RolloverView {
    phase: Phase,
    since: String,
    waiting_for: Vec<String>,
}

pub async fn init(context: &Context, output: Output) -> anyhow::Result<ExitCode> {
    let plugged = context.plugged().await?.is_some();
    anyhow::ensure!(!plugged, "a plugged-in CA brings its own root, there is none to make");
    let root = roots::load_or_create(&context.store, &context.root, now()).await?;
    distribute(context, &root.authority).await?;
    print(context, output, &root.authority, Some(&root), Vec::new())
}

pub async fn show(context: &Context, args: ShowArgs, output: Output) -> anyhow::Result<ExitCode> {
    if let Some(authority) = context.plugged().await? {
        return print(context, output, &authority, None, Vec::new());
    }
    let root = context.self_signed().await?;
    let waiting = reach(context, args.settle.resolve(&root)).await?;
    print(context, output, &root.authority, Some(&root), waiting)
}

pub async fn rotate(context: &Context, args: RotateArgs, output: Output) -> anyhow::Result<ExitCode> {
    let mut root = context.self_signed().await?;
    if !args.if_due || roots::is_due(root.authority.signer(), context.root.grace_percent, now()) {
        root = roots::rotate(&context.store, &context.root, now()).await?;
    }
    distribute(context, &root.authority).await?;
    print(context, output, &root.authority, Some(&root), Vec::new())
}

pub async fn rotate_key(context: &Context, args: RotateKeyArgs, output: Output) -> anyhow::Result<ExitCode> {
    let settle = args.settle.resolve(&context.self_signed().await?);
    let advanced =
        rollover::advance(&context.store, &context.root, &context.maps, settle, args.force, now()).await;
    let root = advanced?;
    distribute(context, &root.authority).await?;
    let waiting = reach(context, settle).await?;
    print(context, output, &root.authority, Some(&root), waiting)
}

async fn distribute(context: &Context, authority: &Authority) -> anyhow::Result<()> {
    let namespace = &context.root.storage_namespace;
    let done = distribution::distribute(&context.store, authority, namespace, &context.maps).await?;
    match done.failed.into_iter().next() {
        Some((name, error)) => Err(anyhow::Error::new(error).context(format!("ConfigMap {name}"))),
        None => Ok(()),
    }
}

async fn reach(context: &Context, settle: Duration) -> anyhow::Result<Vec<String>> {
    let reach = rollover::reach(&context.store, &context.root, &context.maps, settle, now()).await?;
    Ok(reach.missing)
}

fn print(
    context: &Context,
    output: Output,
    authority: &Authority,
    root: Option<&SelfSigned>,
    waiting_for: Vec<String>,
) -> anyhow::Result<ExitCode> {
    let now = now();
    let view = |certificate| CertificateView::new(certificate, now);
    let rollover = root.map(|root| &root.rollover).and_then(|state| rollover_view(state, waiting_for));
    let ends = authority.end_of_life();
    let warnings = match ends - now < WARN_BEFORE_END {
        true => vec![format!("the CA ends at {}; renew it now", moment(ends))],
        false => Vec::new(),
    };
    let view = RootView {
        mode: if root.is_some() { "self-signed" } else { "plugged-in" },
        secret: root.map(|_| context.root.secret_name().to_string()),
        signing: view(authority.signer()),
        chain: authority.chain().iter().map(view).collect(),
        roots: authority.roots().iter().map(view).collect(),
        rollover,
        warnings,
    };
    output.print(&view, text)?;
    Ok(ExitCode::SUCCESS)
}

fn rollover_view(state: &RolloverState, waiting_for: Vec<String>) -> Option<RolloverView> {
    let since = moment(state.since()?);
    Some(RolloverView { phase: state.phase(), since, waiting_for })
}

fn text(view: &RootView) -> String {
    let mut lines = vec![format!("CA:       {}", view.mode)];
    lines.extend(view.secret.iter().map(|secret| format!("Secret:   {secret}")));
    lines.push(format!("Signing:  {}", view.signing.line()));
    let above = view.chain.iter().filter(|link| link.serial != view.signing.serial);
    lines.extend(above.map(|link| format!("Chain:    {}", link.line())));
    lines.extend(view.roots.iter().map(|root| format!("Trusted:  {}", root.line())));
    if let Some(rollover) = &view.rollover {
        let phase = match rollover.phase {
            Phase::Trust => "1 of 3, trust: the next root is being distributed, the old key signs",
            Phase::Sign => "2 of 3, sign: the new key signs, the old root is still trusted",
            Phase::Steady => "none",
        };
        lines.push(format!("Rollover: phase {phase}; since {}", rollover.since));
        lines.extend(rollover.waiting_for.iter().map(|missing| format!("  waits:  {missing}")));
        if rollover.waiting_for.is_empty() {
            lines.push("  ready for the next phase".to_owned());
        }
    }
    lines.extend(view.warnings.iter().map(|warning| format!("WARNING:  {warning}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::roots::{Checked, RootOptions};
    use crate::ca::store::memory::Memory;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn callers_are_waited_for_as_long_as_a_certificate_may_live() {
        let store = Memory::default();
        let mut root = roots::load_or_create(&store, &RootOptions::default(), now()).await.unwrap();
        let default = Settle { duration: None };
        assert_eq!(default.resolve(&root), LEAST_SETTLE);
        for (life, settle) in [(24 * HOUR, LEAST_SETTLE), (365 * 24 * HOUR, 365 * 24 * HOUR)] {
            let options = RootOptions { longest_life: Some(life), ..RootOptions::default() };
            let Checked::Reloaded(next) = roots::check(&store, &options, &root, true, now()).await.unwrap()
            else {
                panic!("the life is noted");
            };
            root = *next;
            assert_eq!(default.resolve(&root), settle);
        }
        assert_eq!(Settle { duration: Some(HOUR) }.resolve(&root), HOUR);
    }
}
