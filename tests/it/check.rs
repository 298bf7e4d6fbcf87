//! `portcullis check` on the folders of `tests/golden/check`: what it prints is in `expected.txt` and, as JSON, in
//! `expected.json` beside the manifests. To write both anew: `PORTCULLIS_UPDATE_GOLDEN=1 cargo test --test it check`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/check")
}

fn check(folder: &Path, more: &[&str]) -> Output {
    let manifests = folder.join("manifests");
    Command::new(env!("CARGO_BIN_EXE_portcullis")).arg("check").arg(manifests).args(more).output().unwrap()
}

#[test]
fn findings_are_as_expected() {
    let cases: Vec<_> = fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(cases.len() >= 3);
    for case in cases {
        for (file, arguments) in [("expected.txt", &[][..]), ("expected.json", &["--output", "json"])] {
            let output = check(&case, arguments);
            assert!(output.stderr.is_empty(), "{}: {output:?}", case.display());
            // Where the repository lies is nothing to compare.
            let folder = case.join("manifests").display().to_string();
            let found = String::from_utf8(output.stdout).unwrap().replace(&folder, "DIR");
            let file = case.join(file);
            if std::env::var_os("PORTCULLIS_UPDATE_GOLDEN").is_some() {
                fs::write(&file, &found).unwrap();
            }
            let expected = fs::read_to_string(&file).unwrap_or_default();
            assert!(found == expected, "{}\n--- found\n{found}\n--- expected\n{expected}", file.display());
            let failed = found.contains("error  ") || found.contains("\"severity\": \"error\"");
            assert_eq!(output.status.code(), Some(i32::from(failed)), "{}", file.display());
        }
    }
}

#[test]
fn classes_of_another_controller_are_served_on_request() {
    let case = golden().join("classes");
    let nginx =
        ["--ingress-class", "nginx", "--controller-class", "k8s.io/ingress-nginx", "--output", "json"];
    let text = String::from_utf8(check(&case, &nginx).stdout).unwrap();
    assert!(!text.contains("OtherIngressClass"), "{text}");
    assert!(text.contains("ServiceNotFound"), "{text}");
}

#[test]
fn settings_that_cannot_be_used_are_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "no-such-setting: 1\n").unwrap();
    let output = check(&golden().join("classes"), &["--settings", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-setting"), "{output:?}");
}
