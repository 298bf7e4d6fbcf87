//! A gateway that has followed its folder through many edits must be as one that is started on the folder now: the
//! same certificates, routes, backends and findings, by its admin port, by handshakes and by requests.
//!
//! Edits are random and can be had again: `PORTCULLIS_SEED=… cargo test --test it long_lived`. What the gateway keeps
//! on purpose, the last good state of what cannot be used, is in no folder that is compared: files are broken and
//! repaired, and Secrets that an Ingress names never go.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fastrand::Rng;
use portcullis::testing::PATIENCE;
use portcullis::testing::backend::{After, Backend};
use portcullis::testing::certificates::{Authority, PemPair};
use portcullis::testing::client::Client;
use serde_json::Value;

use crate::gateway::{Gateway, Setup};
use crate::manifests::{Ingress, secret, service};

const BURSTS: usize = 20;
const HOSTS: [&str; 6] =
    ["a.example", "b.example", "www.b.example", "x.c.example", "pem.example", "other.example"];
const SECRETS: [&str; 2] = ["one", "two"];

#[test]
fn it_serves_what_one_that_starts_now_does() {
    let seed = std::env::var("PORTCULLIS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    let backends: Vec<_> = (0..4).map(backend).collect();
    let setup = || Setup::new().setting("secret-grace-period: 0s").setting("access-log: false");
    let gateway = setup().start();
    let mut folder = Folder::new(gateway.path("manifests"), gateway.path("outside"), &backends, seed);
    for burst in 0..BURSTS {
        folder.journal.push(format!("burst {burst}"));
        folder.edit();
        let fresh = setup().manifests_at(&folder.root).start();
        let expected = view(&fresh);
        let begun = Instant::now();
        let mut differences = differences(&view(&gateway), &expected);
        while !differences.is_empty() {
            let story = folder.journal.join("\n");
            assert!(begun.elapsed() < PATIENCE, "seed {seed}\n{story}\n{}", differences.join("\n"));
            differences = self::differences(&view(&gateway), &expected);
        }
        assert_eq!(
            checked(&folder.root),
            expected["/api/v1/diagnostics"],
            "seed {seed}: check says otherwise"
        );
    }
    let log = gateway.log();
    assert!(!log.contains("panicked"), "seed {seed}:\n{log}");
}

/// Answers with its number.
fn backend(number: usize) -> Backend {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
    Backend::answering(answer, After::KeepAlive)
}

/// All that is compared, by what was asked.
fn view(gateway: &Gateway) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    for path in ["/api/v1/certificates", "/api/v1/hosts", "/api/v1/diagnostics"] {
        let value: Value = serde_json::from_str(&gateway.admin(path)).unwrap();
        seen.insert(path.to_owned(), plain(value));
    }
    for host in HOSTS {
        let tls = Client::try_tls(gateway.https, Some(host), &["http/1.1"]).unwrap();
        let certificate = tls.wire.certificate();
        // The generated one is another in each gateway.
        let is_generated = certificate.windows(4).any(|word| word == b"Fake");
        let what = if is_generated { "generated".into() } else { format!("{:x?}", &certificate[..]) };
        seen.insert(format!("certificate of {host}"), what);
        let mut plain = gateway.client();
        for path in ["/", "/p/q"] {
            let answer = plain.get(host, path);
            let location = answer.field("location").unwrap_or_default().to_owned();
            seen.insert(
                format!("http://{host}{path}"),
                format!("{} {location} {}", answer.status, answer.text()),
            );
        }
    }
    seen.insert("watches".into(), watches(gateway).to_string());
    seen
}

/// A list of the admin port as sorted lines, without what is another in each gateway.
fn plain(value: Value) -> String {
    let Value::Object(map) = value else { panic!("{value}") };
    let mut lines: Vec<_> =
        map.into_iter().flat_map(|(_, list)| list.as_array().cloned().unwrap_or_default()).collect();
    for line in &mut lines {
        if line["secret"].is_null() {
            for key in ["serial", "fingerprint", "not_before", "not_after"] {
                line.as_object_mut().unwrap().remove(key);
            }
        }
        for route in line["routes"].as_array_mut().into_iter().flatten() {
            let route = route.as_object_mut().unwrap();
            route.remove("requests");
            route.remove("failed");
        }
    }
    let mut lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    lines.sort();
    lines.join("\n")
}

fn differences(seen: &BTreeMap<String, String>, expected: &BTreeMap<String, String>) -> Vec<String> {
    let differs = expected.iter().filter(|(what, value)| seen.get(*what) != Some(value));
    differs
        .flat_map(|(what, value)| {
            let seen = seen.get(what).map_or("", String::as_str);
            let has = |text: &str, line: &str| text.lines().any(|other| other == line);
            let only = |one: &str, other: &str, who: &str| {
                let lines = one.lines().filter(|line| !has(other, line));
                lines.map(|line| format!("{what}: only {who}: {line}")).collect::<Vec<_>>()
            };
            [only(seen, value, "the long-lived"), only(value, seen, "the fresh")].concat()
        })
        .collect()
}

/// How many watches of folders its generation has.
fn watches(gateway: &Gateway) -> usize {
    let status: Value = serde_json::from_str(&gateway.admin("/api/v1/status")).unwrap();
    let files = fs::read_dir(format!("/proc/{}/fdinfo", status["pid"])).unwrap();
    let texts = files.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    texts.map(|text| text.matches("inotify wd:").count()).sum()
}

/// What `check` finds.
fn checked(root: &Path) -> String {
    let check = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["check", "--output", "json"])
        .arg(root)
        .output()
        .unwrap();
    plain(serde_json::from_slice(&check.stdout).unwrap())
}

/// The folder and what happens to it.
struct Folder<'a> {
    root: PathBuf,
    outside: PathBuf,
    backends: &'a [Backend],
    pairs: Vec<PemPair>,
    rng: Rng,
    count: usize,
    journal: Vec<String>,
}

impl<'a> Folder<'a> {
    fn new(root: PathBuf, outside: PathBuf, backends: &'a [Backend], seed: u64) -> Self {
        for folder in ["sub/deep", ".shared"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::create_dir(&outside).unwrap();
        let authority = Authority::new("test");
        let names = [&HOSTS[..], &["*.c.example"]].concat();
        let pairs = (0..4).map(|_| authority.leaf(&names).issue());
        let mut pairs: Vec<_> = pairs.collect();
        pairs.push(authority.leaf(&["pem.example"]).issue());
        let mut folder =
            Self { root, outside, backends, pairs, rng: Rng::with_seed(seed), count: 0, journal: Vec::new() };
        folder.write_secrets();
        folder
    }

    fn edit(&mut self) {
        for _ in 0..self.rng.usize(1..7) {
            match self.rng.u8(0..16) {
                0..5 => self.write_manifest(),
                5 => self.write_secrets(),
                6 => self.delete(),
                7 | 8 => self.rename(),
                9 | 10 => self.write_pair(),
                11 => self.swap_volume(),
                12 => self.move_folder(),
                13 => self.set_link(),
                14 => self.break_and_repair(),
                _ => self.swap_folder(),
            }
        }
    }

    fn folder(&mut self) -> PathBuf {
        let folders = ["", "sub", "sub/deep", "new", ".shared"];
        let folder = self.root.join(folders[self.rng.usize(..folders.len())]);
        if folder.is_dir() { folder } else { self.root.clone() }
    }

    fn file(&mut self) -> PathBuf {
        let name = ["a.yaml", "b.yaml", "c.yml", "d.json"][self.rng.usize(..4)];
        self.folder().join(name)
    }

    fn note(&mut self, what: &str, path: &Path) {
        self.journal.push(format!("{what} {}", path.display()));
    }

    /// With a rename, or in place and in two pieces.
    fn write(&mut self, path: &Path, text: &str) {
        self.note("write", path);
        if self.rng.bool() || path.is_symlink() {
            let staged = path.with_file_name(".staged");
            fs::write(&staged, text).unwrap();
            return fs::rename(staged, path).unwrap();
        }
        fs::write(path, &text[..text.len() / 2]).unwrap();
        fs::write(path, text).unwrap();
    }

    fn manifest(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..self.rng.usize(1..4) {
            text += &match self.rng.u8(0..3) {
                0 => {
                    let backend = self.rng.usize(..self.backends.len());
                    service(["s", "t", "u"][self.rng.usize(..3)], &[self.backends[backend].address()])
                }
                _ => self.ingress(),
            };
        }
        text
    }

    fn ingress(&mut self) -> String {
        let host =
            ["a.example", "b.example", "www.b.example", "*.c.example", "A.Example."][self.rng.usize(..5)];
        let mut ingress = Ingress::new(["i", "j", "k", "l"][self.rng.usize(..4)], host);
        for _ in 0..self.rng.usize(1..3) {
            let path = ["/", "/p", "/p/q"][self.rng.usize(..3)];
            ingress = ingress.path(
                ["Prefix", "Exact"][self.rng.usize(..2)],
                path,
                ["s", "t", "u"][self.rng.usize(..3)],
            );
        }
        if self.rng.bool() {
            ingress = ingress.created(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"][self.rng.usize(..2)]);
        }
        if self.rng.bool() {
            ingress = ingress.tls(SECRETS[self.rng.usize(..2)]);
        }
        match self.rng.u8(0..6) {
            0 => ingress.annotation("ssl-redirect", ["false", "maybe"][self.rng.usize(..2)]).yaml(),
            1 => ingress.annotation("from-to-www-redirect", "true").yaml(),
            2 => ingress.own_annotation("no-such-annotation", "x").yaml(),
            _ => ingress.yaml(),
        }
    }

    fn write_manifest(&mut self) {
        let (file, text) = (self.file(), self.manifest());
        if !file.is_dir() {
            self.write(&file, &text);
        }
    }

    fn break_and_repair(&mut self) {
        let (file, text) = (self.file(), self.manifest());
        if !file.is_dir() {
            for text in [&*format!("{text}---\nkind: {{\n"), "", &text] {
                self.write(&file, text);
            }
        }
    }

    /// They come first in order, so nothing takes their place.
    fn write_secrets(&mut self) {
        let secrets: Vec<_> =
            SECRETS.iter().map(|name| secret(name, &self.pairs[self.rng.usize(..4)])).collect();
        let file = self.root.join("0.yaml");
        self.write(&file, &secrets.concat());
    }

    fn delete(&mut self) {
        let file = self.file();
        if file.is_file() {
            self.note("delete", &file);
            fs::remove_file(file).unwrap();
        }
    }

    fn rename(&mut self) {
        let (from, mut to) = (self.file(), self.file());
        // The kind of text stays what it was.
        to.set_extension(from.extension().unwrap());
        if from.is_file() && !to.is_dir() {
            self.journal.push(format!("rename {} to {}", from.display(), to.display()));
            fs::rename(from, to).unwrap();
        }
    }

    fn write_pair(&mut self) {
        let folder = self.folder();
        let (certificate, key) =
            [("tls.crt", "tls.key"), ("x.crt", "x.key"), ("fullchain.pem", "privkey.pem")]
                [self.rng.usize(..3)];
        let (certificate, key) = (folder.join(certificate), folder.join(key));
        if certificate.exists() && self.rng.bool() {
            self.note("delete the pair", &certificate);
            fs::remove_file(certificate).unwrap();
            return fs::remove_file(key).unwrap();
        }
        let at = self.rng.usize(..self.pairs.len());
        let (chain, private) = (self.pairs[at].certificates_pem(), self.pairs[at].key_pem.clone());
        self.write(&certificate, &chain);
        self.write(&key, &private);
    }

    /// As the kubelet does it.
    fn swap_volume(&mut self) {
        let volume = self.root.join("volume");
        fs::create_dir_all(&volume).unwrap();
        self.count += 1;
        self.note("swap the volume", &volume);
        let version = volume.join(format!("..{}", self.count));
        fs::create_dir(&version).unwrap();
        let at = self.rng.usize(..self.pairs.len());
        fs::write(version.join("tls.crt"), self.pairs[at].certificates_pem()).unwrap();
        fs::write(version.join("tls.key"), &self.pairs[at].key_pem).unwrap();
        fs::write(version.join("m.yaml"), self.manifest()).unwrap();
        let before = fs::read_link(volume.join("..data"));
        symlink(version.file_name().unwrap(), volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        match before {
            Ok(before) => fs::remove_dir_all(volume.join(before)).unwrap(),
            Err(_) => {
                for name in ["tls.crt", "tls.key", "m.yaml"] {
                    symlink(Path::new("..data").join(name), volume.join(name)).unwrap();
                }
            }
        }
    }

    /// Out of the root and back in, or to another name.
    fn move_folder(&mut self) {
        let from = self.root.join(["sub", "new", "sub/deep"][self.rng.usize(..3)]);
        let to = self.root.join(["sub", "new"][self.rng.usize(..2)]);
        if !from.is_dir() {
            return;
        }
        self.journal.push(format!("move {} to {}", from.display(), to.display()));
        let away = self.outside.join("away");
        fs::rename(&from, &away).unwrap();
        if self.rng.bool() {
            fs::write(away.join("b.yaml"), self.manifest()).unwrap();
        }
        fs::rename(&away, if to.exists() { &from } else { &to }).unwrap();
    }

    /// Another folder, made beside it, takes its place.
    fn swap_folder(&mut self) {
        let folder = self.root.join("sub");
        if !folder.is_dir() {
            return;
        }
        self.count += 1;
        self.note("swap", &folder);
        let next = self.outside.join(format!("next{}", self.count));
        fs::create_dir_all(next.join("deep")).unwrap();
        fs::write(next.join("a.yaml"), self.manifest()).unwrap();
        fs::write(next.join("deep/c.yml"), self.manifest()).unwrap();
        fs::rename(&folder, self.outside.join(format!("old{}", self.count))).unwrap();
        fs::rename(next, folder).unwrap();
    }

    /// A link to a folder, which another may lead to as well.
    fn set_link(&mut self) {
        let link = self.root.join(["link", "m", "sub/link"][self.rng.usize(..3)]);
        let target = [".shared", "new", "sub/deep"][self.rng.usize(..3)];
        if link.is_symlink() {
            self.note("unlink", &link);
            fs::remove_file(&link).unwrap();
        } else if link.parent().unwrap().is_dir() {
            self.journal.push(format!("link {} to {target}", link.display()));
            symlink(self.root.join(target), link).unwrap();
        }
    }
}
