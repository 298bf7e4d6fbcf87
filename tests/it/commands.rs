//! What commands print when something is wrong: each cause once, in the form that was asked for.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use portcullis::testing::backend::{Backend, refusing_address};
use portcullis::testing::eventually;
use serde_json::Value;
use tempfile::TempDir;

use crate::gateway::Gateway;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn every_cause_is_told_once() {
    let folder = folder(&[("a.yaml", "workers: 1\n")]);
    let nobody = refusing_address().to_string();
    for arguments in [
        &["check", ".", "--settings", "nope.yaml"][..],
        &["diff", "nope.yaml", "a.yaml"],
        &["diff", "a.yaml", "nope.yaml"],
        &["certs", "--admin", &nobody],
        &["status", "--admin", &nobody],
        &["restart", "--admin", &nobody],
        &["policy", "compile", "-f", "nope.yaml"],
        &["ca", "verify", "nope.pem"],
        &["ca", "show", "--root-cert", "nope.pem"],
        &["tickets", "rotate", "--secret", "a/b", "--file", "nope/tickets.yaml"],
        &["serve", "--settings", "nope.yaml"],
    ] {
        let output = run(folder.path(), arguments);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert_eq!(told.matches("(os error").count(), 1, "{arguments:?}: {told}");
    }
}

#[test]
fn a_start_that_fails_is_logged_once_and_as_asked() {
    let folder = folder(&[("bad.yaml", "log-level: debug\nfoo: 1\nbar: 2\n")]);
    let text = run(folder.path(), &["serve", "--settings", "bad.yaml"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(stderr(&text).lines().all(|line| line.contains(" ERROR not started: ")), "{}", stderr(&text));
    let json = run(folder.path(), &["serve", "--settings", "bad.yaml", "--log-format", "json"]);
    for told in [stderr(&text), stderr(&json)] {
        for problem in ["bad.yaml:2: foo: unknown setting", "bad.yaml:3: bar: unknown setting"] {
            assert_eq!(told.matches(problem).count(), 1, "{told}");
        }
    }
    for line in stderr(&json).lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(line["level"], "ERROR");
    }
}

#[test]
fn an_older_supervisor_finds_the_generation_by_its_older_name() {
    let folder = folder(&[]);
    for name in ["generation", "worker"] {
        let output = run(folder.path(), &[name]);
        assert_eq!(output.status.code(), Some(1), "known, and of no use by hand: {}", stderr(&output));
    }
}

#[test]
fn a_command_line_that_cannot_work_is_wrong_usage() {
    let folder = folder(&[("ports.yaml", "http-port: 1\nhttps-port: 1\nmanifests: .\n")]);
    for (arguments, code) in [
        (&["serve"][..], 2),
        (&["serve", "--manifests", ".", "--http-port", "1", "--https-port", "1"], 2),
        (&["serve", "--settings", "ports.yaml"], 1),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn check_tells_what_serve_would_log_about_settings() {
    let settings = "log-level: info\nuse-forwarded-headers: true\nwatch-namespace: shop\nworker-processes: 4\n\
                    ssl-ciphers: DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256\n";
    let folder = folder(&[("settings.txt", settings)]);
    let output = run(folder.path(), &["check", ".", "--settings", "settings.txt", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told: Vec<_> = found["diagnostics"].as_array().unwrap().iter().collect();
    assert!(told.iter().all(|it| it["severity"] == "warning" && it["file"] == "settings.txt"), "{found}");
    let keys: Vec<_> = told.iter().map(|it| it["field"].as_str().unwrap()).collect();
    assert_eq!(keys, ["ssl-ciphers", "use-forwarded-headers", "watch-namespace", "worker-processes"]);
    let text = run(folder.path(), &["check", ".", "--settings", "settings.txt"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.ends_with("0 objects read, 0 errors, 4 warnings, 0 infos\n"), "{text}");
}

#[test]
fn check_and_diff_read_the_same_folder() {
    let folder = folder(&[("settings.yaml", "workers: 2\n")]);
    let check = run(folder.path(), &["check", "."]);
    assert_eq!(check.status.code(), Some(0), "{check:?}");
    assert!(String::from_utf8_lossy(&check.stdout).contains("SettingsFile"), "{check:?}");
    assert_eq!(run(folder.path(), &["diff", ".", "."]).status.code(), Some(0));
}

#[test]
fn roots_and_chains_that_do_not_fit_are_told_in_words() {
    let folder = folder(&[("empty.pem", "no certificate\n")]);
    let ca = |arguments: &[&str]| run(folder.path(), &[&["ca"], arguments].concat());
    for state in ["one", "other"] {
        assert!(ca(&["--state-dir", state, "init"]).status.success());
    }
    let id = "spiffe://cluster.local/ns/a/sa/b";
    let issued = ca(&["--state-dir", "one", "issue", "--spiffe", id, "--out", "pair"]);
    assert_eq!(stderr(&issued), "");
    let other = ca(&["--state-dir", "other", "verify", "pair/cert-chain.pem"]);
    assert_eq!(other.status.code(), Some(1));
    let told = String::from_utf8(other.stdout).unwrap();
    assert!(told.contains("no trusted root has signed this chain"), "{told}");
    let empty = ca(&["--state-dir", "one", "verify", "pair/cert-chain.pem", "--roots", "empty.pem"]);
    assert_eq!(stderr(&empty), "error: empty.pem holds no certificate\n");

    let foreign = ["--state-dir", "one", "issue", "--spiffe", "spiffe://other/ns/a/sa/b", "--out", "foreign"];
    let warned = stderr(&ca(&foreign));
    assert!(warned.contains("is not of the trust domain cluster.local"), "{warned}");
}

#[test]
fn a_state_directory_that_cannot_be_made_is_told() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["state-dir: /dev/null/state"]);
    assert!(gateway.log().contains("nothing can be kept in the state directory"), "{}", gateway.log());
    assert_eq!(gateway.client().get("a.example", "/").status, 200);
}

#[test]
fn every_metric_is_in_the_documentation() {
    let documented =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md")).unwrap();
    let gateway = Gateway::before(&Backend::echo());
    let metrics = gateway.admin("/metrics");
    let families: Vec<_> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(families.iter().any(|(name, _)| name.starts_with("portcullis_ocsp_fetch")), "{metrics}");
    for (name, _) in families {
        let total = format!("`{name}_total`");
        assert!(documented.contains(&format!("`{name}`")) || documented.contains(&total), "{name}");
    }
}

#[test]
fn every_line_of_the_access_log_has_an_id() {
    let backend = Backend::echo();
    let gateway = Gateway::with(&backend, &["log-format: json"]);
    let mut client = gateway.client();
    client.get("a.example", "/served");
    client.get("nowhere.example", "/refused");
    let lines = || -> Vec<Value> {
        let log = gateway.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["path"] == "/served" || line["path"] == "/refused").collect()
    };
    eventually("two lines", || lines().len() == 2);
    let lines = lines();
    let ids: Vec<_> = lines.iter().map(|line| line["request_id"].as_str().unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() == 32) && ids[0] != ids[1], "{ids:?}");
    for line in lines {
        assert_eq!(line["level"], "INFO");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}
