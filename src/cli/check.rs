//! `portcullis check PATH…`: reads manifests once, compiles them as the gateway would, and prints what is wrong
//! with them. Nothing is served and nothing is written.
//!
//! Exit code 0 without errors, 1 with, 2 for wrong usage (by clap).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;
use time::OffsetDateTime;

use super::table::{Tone, coloured, colours};
use crate::compile::{Compiled, compile};
use crate::diagnostics::{Diagnostic, Severity};
use crate::settings::load::{Inputs, LoadError, Loaded, Notice, Origin};
use crate::settings::value::Raw;
use crate::sources::directory::Directory;
use crate::sources::origins::Origins;
use crate::store::Store;
use crate::tls::tickets::Tickets;

/// Read manifests and print what is wrong with them.
#[derive(Debug, Args)]
pub struct Check {
    /// Folders or files with manifests and PEM pairs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How to print the findings
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// The settings file that they will be served with
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Name of the IngressClass whose Ingresses are served
    #[arg(long, value_name = "NAME")]
    ingress_class: Option<String>,
    /// Controller name of the IngressClasses that are ours
    #[arg(long, value_name = "NAME")]
    controller_class: Option<String>,
    /// Namespace of the Secrets that PEM pairs stand for
    #[arg(long, value_name = "NAMESPACE")]
    pem_namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What was read, and what there is to say about it.
struct Findings {
    objects: usize,
    diagnostics: Vec<Diagnostic>,
}

impl Check {
    /// Reads, prints to standard output, and says how it went.
    ///
    /// # Errors
    /// Settings that cannot be used, or an output that cannot be written.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let loaded = self.settings()?;
        let Findings { objects, diagnostics } = find(self.paths, loaded)?;
        let written = self.output.print(&diagnostics, objects);
        // Whoever reads may stop early, as `head` does.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error.into());
        }
        let failed = diagnostics.iter().any(|it| it.severity == Severity::Error);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn settings(&self) -> Result<Loaded, LoadError> {
        let flags = [
            ("ingress-class", &self.ingress_class),
            ("controller-class", &self.controller_class),
            ("pem-namespace", &self.pem_namespace),
        ];
        let given = |(key, value): (&'static str, &Option<String>)| Some((key, Raw::Text(value.clone()?)));
        let flags = flags.into_iter().filter_map(given).collect();
        let inputs = Inputs { flags, file: self.settings.clone(), ..Inputs::default() };
        inputs.load()
    }
}

/// Reads everything once and compiles it as a gateway with these settings would.
fn find(paths: Vec<PathBuf>, loaded: Loaded) -> anyhow::Result<Findings> {
    let Loaded { settings, notices } = loaded;
    let batch = Directory { roots: paths, pem_namespace: settings.pem_namespace.clone() }.read();
    let objects = batch.events.len();
    let mut origins = Origins::default();
    batch.origins.into_iter().for_each(|origin| origins.apply(origin));
    let mut store = Store::new();
    batch.events.into_iter().for_each(|event| store.apply(event));
    let (settings, now) = (Arc::new(settings), OffsetDateTime::now_utc().unix_timestamp());
    let empty = Compiled::empty(&settings, &Tickets::new(settings.ssl_session_timeout)?, now)?;
    let changes = store.take_changes();
    let compiled = compile(&store, &changes, &settings, &empty, now);

    let compiled = compiled.report.all().cloned().map(|finding| origins.locate(finding));
    let read = batch.findings.into_iter().flat_map(|file| file.diagnostics);
    let mut diagnostics: Vec<_> = notices.iter().map(doubt).chain(read).chain(compiled).collect();
    diagnostics.sort();
    // What is wrong with a pair is found where it is read and where it is used.
    diagnostics.dedup();
    Ok(Findings { objects, diagnostics })
}

/// What the gateway will log about a setting.
fn doubt(notice: &Notice) -> Diagnostic {
    let (file, message) = match &notice.origin {
        Origin::File(file, line) => (Some(file.clone()), format!("line {line}: {}", notice.message)),
        _ => (None, notice.message.clone()),
    };
    let field = notice.key.clone();
    Diagnostic { severity: Severity::Warning, file, object: None, field, reason: "DoubtfulSetting", message }
}

impl Output {
    fn print(self, diagnostics: &[Diagnostic], objects: usize) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Text => {
                write!(out, "{}", Text { diagnostics, objects, colours: colours() })
            }
            Self::Json => {
                serde_json::to_writer_pretty(&mut out, &Json { diagnostics })?;
                writeln!(out)
            }
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    diagnostics: &'a [Diagnostic],
}

/// Findings by file, worst first, and a line that sums up.
struct Text<'a> {
    diagnostics: &'a [Diagnostic],
    objects: usize,
    colours: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut files: BTreeMap<Option<&Path>, Vec<&Diagnostic>> = BTreeMap::new();
        for diagnostic in self.diagnostics {
            files.entry(diagnostic.file.as_ref().map(|file| file.as_path())).or_default().push(diagnostic);
        }
        for (file, mut diagnostics) in files {
            let title = file.map_or("objects".into(), |file| file.display().to_string());
            writeln!(f, "{title}")?;
            diagnostics.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.cmp(b)));
            let rows: Vec<_> = diagnostics.iter().map(|it| (it, subject(it))).collect();
            let width =
                |text: &dyn Fn(&(&&Diagnostic, String)) -> usize| rows.iter().map(text).max().unwrap_or(0);
            let reasons = width(&|(it, _)| it.reason.len());
            let subjects = width(&|(_, subject)| subject.chars().count()).min(WIDEST);
            for (it, subject) in &rows {
                let (word, tone) = match it.severity {
                    Severity::Error => ("error  ", Tone::Bad),
                    Severity::Warning => ("warning", Tone::Warning),
                    Severity::Info => ("info   ", Tone::Faint),
                };
                let word = coloured(word, tone, self.colours);
                let reason = it.reason;
                let space = if subject.is_empty() && subjects == 0 { "" } else { "  " };
                writeln!(f, "  {word}  {reason:<reasons$}{space}{subject:<subjects$}  {}", it.message)?;
            }
            f.write_char('\n')?;
        }
        let count = |severity| self.diagnostics.iter().filter(|it| it.severity == severity).count();
        let [errors, warnings, infos] = [Severity::Error, Severity::Warning, Severity::Info].map(count);
        writeln!(
            f,
            "{} read, {}, {}, {}",
            counted(self.objects, "object"),
            counted(errors, "error"),
            counted(warnings, "warning"),
            counted(infos, "info")
        )
    }
}

/// A wider subject pushes its message to the right instead of all of them.
const WIDEST: usize = 60;

fn subject(diagnostic: &Diagnostic) -> String {
    let object = diagnostic.object.as_ref().map(ToString::to_string).unwrap_or_default();
    match &*diagnostic.field {
        "" => object,
        field if object.is_empty() => field.to_owned(),
        field => format!("{object} {field}"),
    }
}

fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn text_is_grouped_by_file_aligned_and_plain_without_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec:\n  typo: 1\n  \
                       rules: [{host: a b}, {host: a.test}]\n";
        std::fs::write(folder.path().join("a.yaml"), ingress).unwrap();
        std::fs::write(folder.path().join("b.yaml"), "x: [").unwrap();
        let loaded = Loaded { settings: Settings::default(), notices: Vec::new() };
        let found = find(vec![folder.path().into()], loaded).unwrap();
        let text =
            Text { diagnostics: &found.diagnostics, objects: found.objects, colours: false }.to_string();
        let expected = "\
DIR/a.yaml
  error    InvalidHost   Ingress default/web spec.rules[0].host        \"a b\": the host has a character other than letters, digits, '-', '_' and '.'
  warning  EmptyRule     Ingress default/web spec.rules[1].http.paths  It has no paths and there is no default backend: all its requests get 404.
  warning  UnknownField  Ingress default/web spec.typo                 the field is unknown here and ignored; known are ingressClassName, defaultBackend, tls, rules

DIR/b.yaml
  error    InvalidYaml  line 1: this is not valid YAML; look at indentation, quotes and tabs here

1 object read, 2 errors, 2 warnings, 0 infos
";
        assert_eq!(text.replace(&folder.path().display().to_string(), "DIR"), expected);
    }

    #[test]
    fn a_broken_key_is_told_once_and_under_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let pair = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        std::fs::write(folder.path().join("a.crt"), pair.cert.pem()).unwrap();
        std::fs::write(folder.path().join("a.key"), "no key").unwrap();
        let loaded = Loaded { settings: Settings::default(), notices: Vec::new() };
        let found = find(vec![folder.path().into()], loaded).unwrap();
        let [finding] = &found.diagnostics[..] else { panic!("{:?}", found.diagnostics) };
        assert_eq!(finding.file.as_deref(), Some(&folder.path().join("a.key")));
        assert_eq!(finding.reason, "KeyMissing");
    }

    #[test]
    fn the_exit_code_says_whether_there_was_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let check = || Check {
            paths: vec![folder.path().into()],
            output: Output::Json,
            settings: None,
            ingress_class: None,
            controller_class: None,
            pem_namespace: None,
        };
        assert_eq!(check().run().unwrap(), ExitCode::SUCCESS);
        std::fs::write(folder.path().join("a.yaml"), "x: [").unwrap();
        assert_eq!(check().run().unwrap(), ExitCode::FAILURE);
    }
}
