//! `portcullis diff`, as a script runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Two versions of the same files.
struct Versions(TempDir);

impl Versions {
    fn new() -> Self {
        let versions = Self(tempfile::tempdir().unwrap());
        for version in ["old", "new"] {
            fs::create_dir(versions.0.path().join(version)).unwrap();
        }
        versions
    }

    fn old(self, name: &str, content: &str) -> Self {
        self.write("old", name, content)
    }

    fn new_version(self, name: &str, content: &str) -> Self {
        self.write("new", name, content)
    }

    fn both(self, name: &str, content: &str) -> Self {
        self.old(name, content).new_version(name, content)
    }

    fn write(self, version: &str, name: &str, content: &str) -> Self {
        let file = self.0.path().join(version).join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        self
    }

    fn diff(&self, old: &str, new: &str, more: &[&str]) -> Answer {
        let command = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .current_dir(self.0.path())
            .args(["diff", old, new])
            .args(more)
            .output();
        Answer(command.unwrap())
    }

    fn diff_folders(&self) -> Answer {
        self.diff("old", "new", &[])
    }

    fn diff_settings(&self, more: &[&str]) -> Answer {
        self.diff("old/settings.yaml", "new/settings.yaml", more)
    }
}

struct Answer(Output);

impl Answer {
    fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn out(&self) -> &str {
        std::str::from_utf8(&self.0.stdout).unwrap()
    }

    fn error(&self) -> &str {
        std::str::from_utf8(&self.0.stderr).unwrap()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0.stdout).unwrap()
    }
}

#[test]
fn settings_that_do_not_differ() {
    let answer = Versions::new()
        .old("settings.yaml", "http-port: 80")
        .new_version("settings.yaml", "# a comment\nhttp-port: \"80\"\nhsts: true")
        .diff_settings(&[]);
    assert_eq!((answer.code(), answer.out(), answer.error()), (Some(0), "No differences.\n", ""));
}

#[test]
fn settings_with_changes_of_both_classes() {
    let versions = Versions::new()
        .old("settings.yaml", "http-port: 80\nssl-protocols: [TLSv1.2, TLSv1.3]\nstate-dir: /state")
        .new_version("settings.yaml", "log-level: debug\nssl-protocols: TLSv1.3\nkeep-alive: 500ms");
    let answer = versions.diff_settings(&[]);
    assert_eq!(answer.code(), Some(3), "{}", answer.error());
    insta::assert_snapshot!(answer.out(), @r"
    WHAT           CHANGE                       CLASS    EFFECT
    http-port      80 -> 8080                   restart  needs a new worker generation: listeners are opened before workers start
    state-dir      /state -> (none)             restart  needs a new worker generation: state is read once, at start
    log-level      info -> debug                dynamic  applied in place
    ssl-protocols  TLSv1.2, TLSv1.3 -> TLSv1.3  dynamic  applied in place
    keep-alive     75s -> 500ms                 dynamic  applied in place

    3 dynamic, 2 restart-requiring
    ");

    let answer = versions.diff_settings(&["--output", "json"]);
    assert_eq!(answer.code(), Some(3));
    insta::assert_yaml_snapshot!("settings", answer.json());
}

#[test]
fn settings_with_dynamic_changes_only() {
    let answer = Versions::new()
        .old("settings.yaml", "")
        .new_version("settings.yaml", "enable-ocsp: false")
        .diff_settings(&["--output=json"]);
    assert_eq!(answer.code(), Some(0));
    assert_eq!(answer.json()["dynamic"], 1);
    assert_eq!(answer.json()["changes"][0]["key"], "enable-ocsp");
}

#[test]
fn bad_settings_are_an_error_with_file_and_line() {
    let answer = Versions::new()
        .old("settings.yaml", "")
        .new_version("settings.yaml", "\nhttp-prot: 80\nworkers: -1")
        .diff_settings(&[]);
    assert_eq!((answer.code(), answer.out()), (Some(1), ""));
    insta::assert_snapshot!(answer.error(), @r#"
    error: new/settings.yaml:2: http-prot: unknown setting; did you mean http-port?
    new/settings.yaml:3: workers: "-1" is not a whole number, 0 or more
    "#);
}

#[test]
fn the_environment_of_some_gateway_does_not_count() {
    let versions =
        Versions::new().old("settings.yaml", "http-port: 80").new_version("settings.yaml", "http-port: 81");
    let status = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .current_dir(versions.0.path())
        .env("PORTCULLIS_HTTP_PORT", "82")
        .args(["diff", "old/settings.yaml", "new/settings.yaml"])
        .output()
        .unwrap()
        .status;
    assert_eq!(status.code(), Some(3));
}

#[test]
fn wrong_usage() {
    let versions = Versions::new();
    assert_eq!(versions.diff("old", "new", &["--output", "xml"]).code(), Some(2));
    let missing = versions.diff("old", "nowhere", &[]);
    assert_eq!(missing.code(), Some(1));
    assert!(missing.error().starts_with("error: cannot read nowhere: "), "{}", missing.error());
    let unlike = versions.new_version("settings.yaml", "").diff("old", "new/settings.yaml", &[]);
    assert_eq!(unlike.code(), Some(1));
    assert!(unlike.error().contains("cannot compare a folder with a file"), "{}", unlike.error());
}

const INGRESS: &str = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules:
  - host: shop.example.com
";

fn secret(certificate: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: tls}}\ndata: {{tls.crt: {certificate}, tls.key: k3y}}\n"
    )
}

#[test]
fn folders_of_manifests() {
    let versions = Versions::new()
        .old("web/ingress.yaml", INGRESS)
        .new_version(
            "web.yaml",
            &format!(
                "{}---\nkind: Namespace\nmetadata: {{name: shop}}\n",
                INGRESS.replace("shop.ex", "www.ex")
            ),
        )
        .old("tls.yaml", &secret("b2xk"))
        .new_version("tls.yaml", &secret("bmV3"))
        .old("gone.json", r#"{"kind": "List", "items": [{"kind": "Service", "metadata": {"name": "gone"}}]}"#)
        .old("pair/www.crt", "old certificate")
        .new_version("pair/www.crt", "new certificate")
        .both("pair/www.key", "same key")
        .both("settings.yaml", "workers: 2")
        .new_version(".hidden.yaml", "no: object")
        .new_version("README.md", "no manifest");
    let answer = versions.diff_folders();
    assert_eq!(answer.code(), Some(0), "{}", answer.error());
    insta::assert_snapshot!(answer.out(), @r#"
    WHAT                   CHANGE              CLASS    EFFECT
    Ingress shop/web       spec.rules[0].host  dynamic  applied in place
    Namespace shop         added               dynamic  applied in place
    Secret default/tls     data["tls.crt"]     dynamic  applied in place
    Service default/gone   removed             dynamic  applied in place
    PEM file pair/www.crt  changed             dynamic  applied in place

    5 dynamic, 0 restart-requiring
    "#);

    let json = versions.diff("old", "new", &["--output", "json"]);
    insta::assert_yaml_snapshot!("folders", json.json());
}

#[test]
fn no_value_of_a_secret_is_shown() {
    let versions = Versions::new()
        .old("tls.yaml", &secret("b2xkLXNlY3JldA"))
        .new_version("tls.yaml", &secret("bmV3LXNlY3JldA"));
    for more in [&[][..], &["--output=json"]] {
        let answer = versions.diff("old", "new", more);
        assert_eq!(answer.code(), Some(0));
        assert!(answer.out().contains("tls.crt"), "{}", answer.out());
        for value in ["b2xkLXNlY3JldA", "bmV3LXNlY3JldA", "k3y"] {
            assert!(!answer.out().contains(value), "{}", answer.out());
        }
    }
}

#[test]
fn a_secret_that_is_no_yaml_is_not_quoted() {
    let answer = Versions::new()
        .new_version("tls.yaml", "kind: Secret\ndata: {tls.key: k3y-bytes\nmore: [")
        .diff_folders();
    assert_eq!((answer.code(), answer.out()), (Some(1), ""));
    assert!(answer.error().contains("new/tls.yaml:"), "{}", answer.error());
    assert!(!answer.error().contains("k3y-bytes"), "{}", answer.error());
}

#[test]
fn a_document_that_is_no_object_is_named() {
    let answer = Versions::new().new_version("odd.yaml", "kind: Ingress\nspec: {}").diff_folders();
    assert_eq!(answer.code(), Some(1));
    assert_eq!(answer.error(), "error: new/odd.yaml: a document without metadata.name\n");
}

#[test]
fn policies_that_were_compiled_elsewhere_are_objects_too() {
    let answer = Versions::new()
        .old("a.yaml", "name: callers\nnamespace: shop\naction: DENY\n")
        .new_version("a.yaml", "name: callers\nnamespace: shop\n---\nname: more\nkind: Authorization\n")
        .diff("old", "new", &["--output=json"]);
    assert_eq!(answer.code(), Some(0), "{}", answer.error());
    let changes = answer.json()["changes"].clone();
    let told = |row: &serde_json::Value| format!("{} {}", row["object"]["name"], row["change"]);
    let told: Vec<_> = changes.as_array().unwrap().iter().map(told).collect();
    assert_eq!(told, [r#""more" "added""#, r#""callers" "changed""#], "{changes}");
}

#[test]
fn what_an_api_server_adds_is_no_difference() {
    let exported = format!("{INGRESS}status: {{loadBalancer: {{}}}}\n")
        .replace("namespace: shop", "namespace: shop, uid: 1, resourceVersion: \"7\", generation: 3");
    let answer = Versions::new().old("a.yaml", INGRESS).new_version("a.yaml", &exported).diff_folders();
    assert_eq!((answer.code(), answer.out()), (Some(0), "No differences.\n"));
}

#[test]
fn settings_of_a_folder_count_together_with_the_config_map_they_name() {
    let config_map = |value: &str| {
        format!(
            "kind: ConfigMap\nmetadata: {{name: settings, namespace: ingress}}\ndata: {{use-proxy-protocol: \"{value}\"}}\n"
        )
    };
    let answer = Versions::new()
        .both("settings.yaml", "configmap: ingress/settings")
        .old("config.yaml", &config_map("false"))
        .new_version("config.yaml", &config_map("true"))
        .diff_folders();
    assert_eq!(answer.code(), Some(3), "{}", answer.error());
    assert!(answer.out().contains("use-proxy-protocol"), "{}", answer.out());
}

/// A mounted ConfigMap: the files are links through `..data` into a folder that is not read by itself.
#[test]
fn a_mounted_folder_is_read_through_its_links() {
    let versions = Versions::new().both("..1/web.yaml", INGRESS);
    for version in ["old", "new"] {
        let folder = versions.0.path().join(version);
        std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
        std::os::unix::fs::symlink(Path::new("..data/web.yaml"), folder.join("web.yaml")).unwrap();
    }
    let versions = versions.new_version("..1/web.yaml", &INGRESS.replace("shop.ex", "www.ex"));
    let answer = versions.diff_folders();
    assert_eq!(answer.code(), Some(0));
    assert!(answer.out().contains("Ingress shop/web  spec.rules[0].host  dynamic"), "{}", answer.out());
}

#[test]
fn a_loop_of_links_ends() {
    let versions = Versions::new();
    let folder = versions.0.path().join("new");
    std::os::unix::fs::symlink(".", folder.join("again")).unwrap();
    let answer = versions.diff_folders();
    assert_eq!(answer.code(), Some(1));
    assert!(answer.error().contains("folders deep"), "{}", answer.error());
}
