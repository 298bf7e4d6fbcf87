//! Data flows one way: the modules of the data plane never name those of the control plane.

use std::fs;
use std::path::{Path, PathBuf};

use portcullis::settings::schema::FIELDS;

/// What each part of the data plane, and what it stands on, must not name.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("src/http_exchange", CONTROL_PLANE),
    ("src/names", CONTROL_PLANE),
    ("src/net", CONTROL_PLANE),
    ("src/proxy", CONTROL_PLANE),
    ("src/snapshot", CONTROL_PLANE),
    ("src/telemetry", CONTROL_PLANE),
    ("src/tls", CONTROL_PLANE),
    ("src/http_exchange", &["proxy"]),
    ("src/names", &["proxy"]),
    ("src/net", &["proxy", "snapshot", "tls"]),
    ("src/snapshot", &["proxy"]),
    ("src/telemetry", &["proxy"]),
    ("src/tls", &["proxy"]),
    ("src/compile", &["app", "admin", "admission", "cli", "proxy", "sources", "status", "supervisor"]),
    (
        "src/store",
        &["app", "admin", "admission", "cli", "compile", "proxy", "sources", "status", "supervisor"],
    ),
    (
        "src/api_server",
        &["app", "admin", "admission", "ca", "cli", "compile", "proxy", "sources", "status", "store"],
    ),
    ("src/sources", &["app", "admin", "admission", "cli", "compile", "proxy", "status", "supervisor"]),
];
const CONTROL_PLANE: &[&str] = &[
    "admin",
    "admission",
    "annotations",
    "api_server",
    "app",
    "ca",
    "cli",
    "compile",
    "demo",
    "sources",
    "status",
    "store",
    "supervisor",
];

#[test]
fn no_module_reaches_back_against_the_flow() {
    let mut found = Vec::new();
    for (part, forbidden) in FORBIDDEN {
        for file in sources(part) {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in
                text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                let names = |module: &&&str| {
                    let path = format!("crate::{module}");
                    let rest = line.find(&path).map(|at| &line[at + path.len()..]);
                    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
                };
                for module in forbidden.iter().filter(names) {
                    found.push(format!("{}:{} names {module}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_setting_is_read_by_somebody() {
    let read: String = sources("src")
        .iter()
        .filter(|file| !file.starts_with("src/settings"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let unread: Vec<_> = FIELDS
        .iter()
        .filter(|field| {
            let name = format!(".{}", field.key.replace('-', "_"));
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            !read.match_indices(&name).any(|(at, _)| ends(&read[at + name.len()..]))
        })
        .map(|field| field.key)
        .collect();
    assert!(unread.is_empty(), "without effect: {unread:?}");
}

#[test]
fn only_net_is_unsafe() {
    let unsafe_elsewhere: Vec<_> = sources("src")
        .into_iter()
        .filter(|file| !file.starts_with("src/net"))
        .filter(|file| {
            let text = fs::read_to_string(file).unwrap();
            text.lines().any(|line| {
                line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl")
            })
        })
        .collect();
    assert!(unsafe_elsewhere.is_empty(), "{unsafe_elsewhere:?}");
}

#[test]
fn only_tls_names_rustls() {
    let elsewhere: Vec<_> = sources("src")
        .into_iter()
        .filter(|file| !file.starts_with("src/tls") && !file.starts_with("src/testing"))
        .filter(|file| fs::read_to_string(file).unwrap().contains("rustls::"))
        .collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}

#[test]
fn tls_serves_no_http() {
    let served: Vec<_> = sources("src/tls")
        .into_iter()
        .filter(|file| {
            ["hyper", "h2::", "tonic"].iter().any(|name| fs::read_to_string(file).unwrap().contains(name))
        })
        .collect();
    assert!(served.is_empty(), "{served:?}");
}

/// The Rust files of `src/PART.rs` and `src/PART/`, without tests: those may stand anywhere.
fn sources(part: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let single = PathBuf::from(format!("{part}.rs"));
    if single.is_file() {
        files.push(single);
    }
    let mut folders = vec![PathBuf::from(part)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            match path {
                path if is_test(&path) => {}
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
                _ => {}
            }
        }
    }
    assert!(!files.is_empty(), "{part} has no sources");
    files
}

fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests" || stem == "testing")
}
