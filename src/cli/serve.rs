//! `portcullis serve`: starts the supervisor, which runs the gateway.

use std::process::ExitCode;
use std::rc::Rc;

use clap::Args;

use crate::settings::flags::ServeArgs;
use crate::supervisor;
use crate::telemetry::causes::with_causes;
use crate::telemetry::logging::Logging;

/// Run the gateway
#[derive(Args, Clone, Debug)]
pub struct Serve {
    #[command(flatten)]
    args: ServeArgs,
}

impl Serve {
    /// Runs until the gateway is told to end. A supervisor that could not start is told in the log, as everything is
    /// from here on; what is wrong with the settings is told by the worker generation.
    ///
    /// # Errors
    /// There is no log.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        // Only to log as the gateway will: what cannot be read here is a generation's error to report.
        let inputs = self.args.inputs(std::env::vars_os());
        let settings = inputs.load().map_or_else(|_| inputs.log_settings(), |loaded| loaded.settings);
        let logging = Rc::new(Logging::start(&settings)?);
        let arguments = std::env::args_os().skip_while(|argument| argument != "serve").skip(1).collect();
        Ok(supervisor::run(arguments, logging.clone()).unwrap_or_else(|error| {
            tracing::error!("not started: {}", with_causes(&error));
            ExitCode::FAILURE
        }))
    }
}
