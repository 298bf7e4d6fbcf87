//! `portcullis diff OLD NEW`: what differs between two settings files, or two folders of manifests, and whether
//! each change would be applied in place or needs a new worker generation.
//!
//! Values of objects are never shown, only which fields changed, so Secrets can be compared as well.

mod objects;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::settings::field::display;
use crate::settings::load::{Inputs, LoadError};
use crate::settings::{Change, Class, Settings};
use crate::store::objects::{ConfigMap, Metadata};
use objects::{Folder, ObjectChange};

/// Compare two settings files or two folders of manifests
///
/// Exits with 0 if nothing differs or all of it can be applied in place, with 3 if something needs a restart,
/// with 1 on an error.
#[derive(Args, Clone, Debug)]
pub struct DiffArgs {
    /// Settings file, or folder of manifests that may hold a settings.yaml
    pub old: PathBuf,
    /// The same, as it will be
    pub new: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
}

/// Why two things can't be compared.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot compare a folder with a file: {}, {}", .0.display(), .1.display())]
    Unlike(PathBuf, PathBuf),
    /// The parser's own words are left out: they could quote a Secret.
    #[error("{}:{line}: not valid YAML", file.display())]
    Yaml { file: PathBuf, line: u64 },
    #[error("{}: a document without {missing}", file.display())]
    NoObject { file: PathBuf, missing: &'static str },
    #[error("{}: more than {} folders deep", .0.display(), objects::MAX_DEPTH)]
    TooDeep(PathBuf),
    #[error(transparent)]
    Settings(#[from] LoadError),
    #[error("cannot write the answer: {0}")]
    Write(io::Error),
}

impl DiffArgs {
    /// Prints the differences to the standard output.
    ///
    /// # Errors
    /// Something cannot be read or compared, or the answer cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let report = compare(&self.old, &self.new)?;
        let text = match self.output {
            Output::Text => report.to_table(),
            Output::Json => report.to_json(),
        };
        print(&text).map_err(DiffError::Write)?;
        Ok(if report.restart == 0 { ExitCode::SUCCESS } else { ExitCode::from(RESTART_REQUIRING) })
    }
}

/// A reader that has seen enough, as `head`, is no error.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

const RESTART_REQUIRING: u8 = 3;

/// Everything that differs.
#[derive(Debug, Serialize)]
struct Report {
    changes: Vec<Row>,
    dynamic: usize,
    restart: usize,
}

/// One difference, with what it means.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    what: What,
    effect: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What {
    Setting(Change),
    Object {
        #[serde(flatten)]
        change: ObjectChange,
        #[serde(flatten)]
        class: Class,
    },
}

fn compare(old: &Path, new: &Path) -> Result<Report, DiffError> {
    let (settings, objects) = match (is_folder(old)?, is_folder(new)?) {
        (false, false) => {
            (load(Some(old.to_owned()), None)?.diff(&load(Some(new.to_owned()), None)?), Vec::new())
        }
        (true, true) => {
            let (old, new) = (Folder::read(old)?, Folder::read(new)?);
            (folder_settings(&old)?.diff(&folder_settings(&new)?), old.changes(&new))
        }
        _ => return Err(DiffError::Unlike(old.to_owned(), new.to_owned())),
    };
    let settings = settings.into_iter().map(What::Setting);
    // Whatever an object says is compiled into the next snapshot.
    let objects = objects.into_iter().map(|change| What::Object { change, class: Class::Dynamic });
    Ok(Report::new(settings.chain(objects)))
}

fn is_folder(path: &Path) -> Result<bool, DiffError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| DiffError::Read { path: path.to_owned(), source })?;
    Ok(metadata.is_dir())
}

/// What a settings file says by itself, without the flags and environment of some gateway.
fn load(file: Option<PathBuf>, config_map: Option<ConfigMap>) -> Result<Settings, LoadError> {
    Inputs { file, config_map, ..Inputs::default() }.load().map(|loaded| loaded.settings)
}

/// The settings file of a folder, and the ConfigMap that it names, if that is there too.
fn folder_settings(folder: &Folder) -> Result<Settings, LoadError> {
    let settings = load(folder.settings.clone(), None)?;
    let Some(name) = settings.configmap.clone() else { return Ok(settings) };
    let Some(data) = folder.config_map_data(&name) else { return Ok(settings) };
    let metadata =
        Metadata { name, created: None, labels: Default::default(), annotations: Default::default() };
    load(folder.settings.clone(), Some(ConfigMap { metadata, data }))
}

impl Report {
    fn new(changes: impl Iterator<Item = What>) -> Self {
        let changes: Vec<_> = changes.map(|what| Row { effect: effect(what.class()), what }).collect();
        let dynamic = changes.iter().filter(|row| row.what.class() == Class::Dynamic).count();
        Self { restart: changes.len() - dynamic, dynamic, changes }
    }

    fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).unwrap_or_default();
        json + "\n"
    }

    fn to_table(&self) -> String {
        if self.changes.is_empty() {
            return "No differences.\n".into();
        }
        let head = ["WHAT", "CHANGE", "CLASS", "EFFECT"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(self.changes.iter().map(Row::cells)).collect();
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let (what, change, class) = (width(0), width(1), width(2));
        let mut table = String::new();
        for [a, b, c, d] in &rows {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{a:<what$}  {b:<change$}  {c:<class$}  {d}");
        }
        let _ = writeln!(table, "\n{} dynamic, {} restart-requiring", self.dynamic, self.restart);
        table
    }
}

impl Row {
    fn cells(&self) -> [String; 4] {
        let (what, change) = match &self.what {
            What::Setting(change) => {
                (change.key.to_owned(), format!("{} -> {}", shown(&change.old), shown(&change.new)))
            }
            What::Object { change, .. } => (change.name(), change.summary()),
        };
        [what, change, self.what.class().as_str().to_owned(), self.effect.clone()]
    }
}

impl What {
    fn class(&self) -> Class {
        match self {
            Self::Setting(change) => change.class,
            Self::Object { class, .. } => *class,
        }
    }
}

fn shown(value: &serde_json::Value) -> String {
    let text = display(value);
    if text.is_empty() { "(none)".into() } else { text }
}

fn effect(class: Class) -> String {
    match class {
        Class::Dynamic => "applied in place".into(),
        Class::Restart(reason) => format!("needs a new worker generation: {reason}"),
    }
}
