//! Writes `docs/settings.md` from the table, and fails when the file is not what the table says.
//!
//! `PORTCULLIS_UPDATE_DOCS=1 cargo test --lib settings::docs` rewrites it.

use std::fmt::Write;
use std::path::Path;

use super::field::{Field, Unit, display};
use super::flags::FLAGS;
use super::load::Inputs;
use super::schema::FIELDS;
use super::{Class, Settings};

const INTRODUCTION: &str = "\
# Settings

<!-- Generated from the table in src/settings/schema.rs: PORTCULLIS_UPDATE_DOCS=1 cargo test --lib settings::docs -->

A setting is given as a flag of `portcullis serve`, as an environment variable, in the settings file (`--settings FILE`)
or in the ConfigMap named by the setting `configmap`. A flag beats the environment, that beats the file, that beats the
ConfigMap. Not every setting has a flag, and what leads to the ConfigMap cannot be in it (`source`, `manifests`,
`kubeconfig`, `watch-namespace`, `configmap`).

The settings file is flat YAML or JSON. It is watched: an edit applies while the gateway runs. Unknown keys and bad
values are errors; after a bad edit the last good settings stay in force.

- **Dynamic** settings apply in place, no connection notices. **Restart-requiring** ones start a new worker generation
  on the same sockets (see the setting `restart`); `portcullis diff OLD NEW` tells beforehand.
- A time is written `500ms`, `6s`, `1m`, `2h`, `7d` or `1h30m`; a plain number counts seconds. A size is written `512`,
  `8k`, `1m` or `1g`. A list is a YAML list, or one text with commas or spaces in between.
- ConfigMap keys of ingress-nginx that have the same meaning here have the same name. Those that only tune nginx are
  accepted and named in a notice. Snippets, ModSecurity and gateway-wide access rules are refused by name.
- An empty environment variable counts as not set. Unknown `PORTCULLIS_` variables are named in a notice; those that
  Kubernetes makes for a Service called `portcullis…` are passed over.
- A settings file mounted with `subPath` is never updated by Kubernetes; mount the folder.

";

fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    page += "| setting | default | class |\n|---|---|---|\n";
    for field in FIELDS {
        writeln!(page, "| [`{0}`](#{0}) | {1} | {2} |", field.key, default(field), field.class.as_str())
            .unwrap();
    }
    for field in FIELDS {
        page += &section(field);
    }
    page
}

fn section(field: &Field) -> String {
    let mut section = format!("\n## {}\n\n{}\n\n", field.key, field.doc);
    writeln!(section, "- Default: {}", default(field)).unwrap();
    if let Some(unit) = unit(field.unit) {
        writeln!(section, "- Unit: {unit}").unwrap();
    }
    match field.class {
        Class::Dynamic => writeln!(section, "- Class: dynamic").unwrap(),
        Class::Restart(reason) => writeln!(section, "- Class: restart-requiring, because {reason}").unwrap(),
    }
    writeln!(section, "- Example: `{}: {}`", field.key, field.example).unwrap();
    let env = field.env();
    match FLAGS.contains(&field.key) {
        true => writeln!(section, "- Also: flag `--{}`, variable `{env}`", field.key).unwrap(),
        false => writeln!(section, "- Also: variable `{env}`").unwrap(),
    }
    section
}

fn default(field: &Field) -> String {
    match display(&(field.get)(&Settings::default())) {
        value if value.is_empty() => "none".into(),
        value => format!("`{value}`"),
    }
}

fn unit(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::None | Unit::OpenSslNames => None,
        Unit::Seconds => Some("seconds, as a plain number"),
        Unit::Time => Some("time"),
        Unit::Bytes => Some("size in bytes"),
        Unit::Count(counted) => Some(counted),
    }
}

#[test]
fn the_page_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/settings.md");
    let expected = markdown();
    if std::env::var_os("PORTCULLIS_UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/settings.md is stale: run PORTCULLIS_UPDATE_DOCS=1 cargo test --lib settings::docs"
    );
}

#[test]
fn every_example_can_be_pasted_into_a_settings_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    let examples: String = FIELDS.iter().map(|field| format!("{}: {}\n", field.key, field.example)).collect();
    std::fs::write(&file, examples).unwrap();
    let settings = Inputs { file: Some(file), ..Inputs::default() }.load().unwrap().settings;
    assert_eq!(Settings::default().diff(&settings).len(), FIELDS.len());
}
