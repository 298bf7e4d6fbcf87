//! `portcullis worker`: one worker generation. `serve` starts it; by hand it is of no use.

use std::process::ExitCode;
use std::rc::Rc;

use crate::app::{self, config_map};
use crate::settings::Settings;
use crate::settings::flags::ServeArgs;
use crate::settings::load::Loaded;
use crate::store::objects::ConfigMap;
use crate::supervisor::link::Link;
use crate::supervisor::messages::{FromGeneration, Start};
use crate::telemetry::logging::Logging;

/// Runs until the supervisor tells it to end.
///
/// # Errors
/// Settings that cannot be used, or a gateway that could not start. The supervisor is told as well.
pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    // Started from an open file, the process has the name of its number.
    let _ = rustix::thread::set_name(c"portcullis");
    let (link, start) = Link::connect()?;
    let link = Rc::new(link);
    serve(args, &link, &start).inspect_err(|error| {
        link.tell(&FromGeneration::Failed { reason: format!("{error:#}") });
    })?;
    Ok(ExitCode::SUCCESS)
}

fn serve(args: ServeArgs, link: &Rc<Link>, start: &Start) -> anyhow::Result<()> {
    let mut inputs = args.inputs(std::env::vars_os());
    inputs.config_map = start.config_map.clone().map(ConfigMap::from);
    let mut unread = None;
    let loaded = match &start.settings {
        // In place of one that crashed, and just like it. Edits since then are met as a running gateway does.
        Some(settings) => Loaded { settings: Settings::clone(settings), notices: Vec::new() },
        None if inputs.config_map.is_some() => inputs.load()?,
        None => {
            let loaded = inputs.load()?;
            let config_map = config_map::read(&loaded.settings);
            inputs.config_map = config_map.unwrap_or_else(|error| {
                unread = Some(error);
                None
            });
            // A bad one is met again, and reported, when the source has listed it.
            inputs.load().unwrap_or_else(|_| {
                inputs.config_map = None;
                loaded
            })
        }
    };
    let logging = Logging::start(&loaded.settings)?;
    if let Some(error) = unread {
        tracing::warn!("the ConfigMap with settings cannot be read yet: {error:#}");
    }
    app::serve(inputs, loaded, logging, link.clone(), start)
}
