//! `portcullis generation`: one worker generation. `serve` starts it; by hand it is of no use.

use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;

use crate::app::{self, NoManifests};
use crate::settings::Settings;
use crate::settings::flags::ServeArgs;
use crate::settings::load::{LoadError, Loaded};
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start};
use crate::telemetry::causes::with_causes;
use crate::telemetry::logging::Logging;

/// One worker generation; started by serve
#[derive(Args, Clone, Debug)]
pub struct GenerationArgs {
    #[command(flatten)]
    args: ServeArgs,
}

impl GenerationArgs {
    /// Runs until the supervisor tells it to end. Settings that cannot be used, or a gateway that could not start, are
    /// told to the supervisor, which logs them.
    ///
    /// # Errors
    /// There is no supervisor.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Started from an open file, the process has the name of its number.
        let _ = rustix::thread::set_name(c"portcullis");
        let (link, start) = Link::connect()?;
        let link = Rc::new(link);
        let Err(error) = serve(self.args, &link, &start) else { return Ok(ExitCode::SUCCESS) };
        link.tell(&FromGeneration::Failed { reason: with_causes(&error) });
        Ok(if is_wrong_usage(&error) { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE })
    }
}

/// As clap ends; `serve` ends with the code of its first generation.
const WRONG_USAGE: u8 = 2;

fn is_wrong_usage(error: &anyhow::Error) -> bool {
    error.is::<NoManifests>() || error.downcast_ref().is_some_and(LoadError::is_wrong_usage)
}

fn serve(args: ServeArgs, link: &Rc<Link>, start: &Start) -> anyhow::Result<()> {
    let inputs = args.inputs(std::env::vars_os());
    let loaded = match &start.settings {
        // In place of one that crashed, and just like it. Edits since then are met as a running gateway does.
        Some(settings) => Loaded { settings: Settings::clone(settings), notices: Vec::new() },
        None => inputs.load()?,
    };
    let logging = Logging::start(&loaded.settings)?;
    app::serve(inputs, loaded, logging, link.clone(), start)
}
