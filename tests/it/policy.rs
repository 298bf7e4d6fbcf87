//! `portcullis policy` through the binary: golden files, and the contract of flags, output and exit codes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/policy");

fn portcullis(args: &[&str]) -> Output {
    portcullis_with(args, "")
}

fn portcullis_with(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .arg("policy")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The golden cases: the path of the input, and that of the output with another extension.
fn cases() -> Vec<(PathBuf, PathBuf)> {
    let with = |input: &Path, extension: &str| {
        PathBuf::from(input.to_str().unwrap().replace(".in.yaml", extension))
    };
    let inputs = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().path());
    let inputs = inputs.filter(|path| path.to_str().unwrap().ends_with(".in.yaml"));
    let mut cases: Vec<_> = inputs.map(|input| (input.clone(), with(&input, ""))).collect();
    cases.sort();
    cases
}

#[test]
fn compile_prints_the_golden_bytes() {
    let cases = cases();
    assert!(cases.len() >= 60, "the golden files are gone: {}", cases.len());
    for (input, stem) in cases {
        let name = stem.file_name().unwrap().to_str().unwrap();
        let output = portcullis(&["compile", "-f", input.to_str().unwrap()]);
        let expected = fs::read_to_string(format!("{}.out.yaml", stem.display())).unwrap();
        assert_eq!(stdout(&output), expected, "{name}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        if let Ok(keys) = fs::read_to_string(format!("{}.keys", stem.display())) {
            let flags = ["compile", "-f", input.to_str().unwrap(), "--workload", "foo/web", "--labels"];
            let output = portcullis(&[&flags[..], &["app=a,tier=front"]].concat());
            assert_eq!(stdout(&output), keys, "{name}: {}", stderr(&output));
        }
    }
}
