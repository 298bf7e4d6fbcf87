//! The arguments of `portcullis serve`: those settings that have a flag, and the settings file.
//!
//! Names, help and validation of the flags come from the table in `schema`, so that a flag and its key in the
//! settings file cannot drift apart. Whatever is not given stays unset, for the environment or the file to say.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::Settings;
use super::field::{Class, Field};
use super::load::Inputs;
use super::schema::{FIELDS, field};
use super::value::Raw;

/// What `portcullis serve` is told on its command line.
#[derive(Clone, Debug, Default)]
pub struct ServeArgs {
    /// The settings file; `PORTCULLIS_SETTINGS` where the flag isn't given.
    pub settings: Option<PathBuf>,
    /// The settings given as flags, by key.
    pub flags: Vec<(&'static str, Raw)>,
}

/// The settings that have a flag, in the order of the help.
pub const FLAGS: &[&str] = &[
    "source",
    "manifests",
    "kubeconfig",
    "watch-namespace",
    "watch-namespace-selector",
    "configmap",
    "ingress-class",
    "controller-class",
    "ingress-class-by-name",
    "watch-ingress-without-class",
    "pem-namespace",
    "annotations-prefix",
    "bind-address",
    "http-port",
    "https-port",
    "mesh-port",
    "admin-bind-address",
    "admin-port",
    "validating-webhook",
    "validating-webhook-configuration",
    "workers",
    "state-dir",
    "ca",
    "ca-port",
    "default-ssl-certificate",
    "ssl-session-ticket-secret",
    "publish-status-address",
    "publish-service",
    "report-node-internal-ip-address",
    "election-id",
    "update-status-on-shutdown",
    "log-level",
    "log-format",
];

impl ServeArgs {
    /// Everything to load settings from, given the variables of this process.
    pub fn inputs(self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Inputs {
        // Variables that are not Unicode cannot be ours.
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let environment: Vec<_> = variables.into_iter().filter_map(text).collect();
        let variable =
            environment.iter().find(|(name, value)| name == SETTINGS_VARIABLE && !value.is_empty());
        let file = self.settings.or_else(|| variable.map(|(_, value)| PathBuf::from(value)));
        Inputs { flags: self.flags, environment, file, config_map: None }
    }
}

const SETTINGS_VARIABLE: &str = "PORTCULLIS_SETTINGS";

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let settings = Arg::new("settings")
            .long("settings")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(format!("Settings file, YAML or JSON; watched while running [env: {SETTINGS_VARIABLE}]"));
        command.arg(settings).args(FLAGS.iter().filter_map(|key| field(key)).map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let settings = matches.get_one::<PathBuf>("settings").cloned();
        let given = |field: &Field| {
            let values: Vec<String> = matches.try_get_many(field.key).ok()??.cloned().collect();
            Some((field.key, Raw::Text(values.join(","))))
        };
        Ok(Self { settings, flags: FIELDS.iter().filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(field: &'static Field) -> Arg {
    let set = field.set;
    let check = move |text: &str| match set(&mut Settings::default(), &Raw::Text(text.to_owned())) {
        Ok(()) => Ok(text.to_owned()),
        Err(invalid) => Err(format!("expected {}", invalid.expected)),
    };
    let arg = Arg::new(field.key).long(field.key).value_parser(check).help(help(field));
    let arg = arg.value_name(match field.key {
        "manifests" | "state-dir" => "DIR",
        "kubeconfig" => "FILE",
        key if key.ends_with("-port") => "PORT",
        _ => "VALUE",
    });
    match field.key {
        "manifests" | "bind-address" => arg.action(ArgAction::Append),
        // As everywhere with Kubernetes: by itself it means true.
        _ if (field.get)(&Settings::default()).is_boolean() => {
            arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).default_missing_value("true")
        }
        _ => arg.action(ArgAction::Set),
    }
}

fn help(field: &Field) -> String {
    let default = super::field::display(&(field.get)(&Settings::default()));
    let default = if default.is_empty() { "none".into() } else { default };
    let restart = if let Class::Restart(_) = field.class { ", restart-requiring" } else { "" };
    format!("{} [default: {default}{restart}] [env: {}]", field.doc.replace('`', ""), field.env())
}

#[cfg(test)]
mod tests;
