//! The container image, as far as it can be told without building it (`e2e/image/run.sh` does): what the
//! Containerfile takes exists, what it makes is what the manifests and the chart expect, and the right to low ports is
//! used as containers grant it.

use std::fs;
use std::path::Path;

use portcullis::net::listen::listen;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::Value;

use crate::network::Network;

fn text(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The arguments of each `instruction` that fits on one line.
fn instructions<'a>(containerfile: &'a str, instruction: &str) -> Vec<&'a str> {
    containerfile.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).collect()
}

/// The arguments of the only `instruction` of the last stage.
fn of_image<'a>(containerfile: &'a str, instruction: &str) -> &'a str {
    let (_, stage) = containerfile.rsplit_once("\nFROM ").expect("stages");
    match instructions(stage, instruction)[..] {
        [arguments] => arguments,
        ref others => panic!("{instruction}: {others:?}"),
    }
}

#[test]
fn what_the_containerfile_copies_exists() {
    let file = text("Containerfile");
    let mut copied = 0;
    for arguments in instructions(&file, "COPY").into_iter().filter(|all| !all.starts_with("--from=")) {
        let (sources, _) = arguments.rsplit_once(' ').expect("a destination");
        for source in sources.split(' ') {
            assert!(Path::new(source).exists(), "{source}");
            copied += 1;
        }
    }
    assert!(copied >= 3, "{copied}");
}

#[test]
fn the_image_is_what_the_manifests_expect() {
    let file = text("Containerfile");
    let deployment = yaml("config/kubernetes/deployment.yaml");
    let pod = &deployment["spec"]["template"]["spec"];
    let values = yaml("config/helm/portcullis/values.yaml");
    let chart = &values["controller"];

    let user = |context: &Value| format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert_eq!(of_image(&file, "USER"), user(&pod["securityContext"]));
    assert_eq!(of_image(&file, "USER"), user(&chart["image"]));

    let exposed: Vec<_> = of_image(&file, "EXPOSE").split(' ').collect();
    let ports = pod["containers"][0]["ports"].as_array().unwrap().iter();
    assert_eq!(exposed, ports.map(|port| port["containerPort"].to_string()).collect::<Vec<_>>());
    let ports =
        [&chart["containerPort"]["http"], &chart["containerPort"]["https"], &chart["metrics"]["port"]];
    assert_eq!(exposed, ports.map(Value::to_string));

    // Arguments begin with a subcommand, so the entry point has to be the program, and nothing may replace it.
    let program = of_image(&file, "COPY").rsplit_once(' ').unwrap().1;
    assert_eq!(of_image(&file, "ENTRYPOINT"), format!("[\"{program}\"]"));
    assert_eq!(of_image(&file, "ENV"), format!("PATH={}", Path::new(program).parent().unwrap().display()));
    for file in [
        "config/kubernetes/deployment.yaml",
        "config/kubernetes/optional/session-tickets.yaml",
        "config/helm/portcullis/templates/controller.yaml",
        "config/helm/portcullis/templates/session-tickets.yaml",
    ] {
        let text = text(file);
        assert!(text.contains("args:"), "{file}");
        assert!(!text.contains("command:"), "{file}");
    }
}

#[test]
fn one_version_and_one_line_that_builds_it() {
    let version = env!("CARGO_PKG_VERSION");
    let line = format!("podman build -f Containerfile -t portcullis:{version} .");
    for file in ["Containerfile", "README.md", "docs/install.md"] {
        assert!(text(file).contains(&line), "{file}: {line}");
    }
    assert_eq!(yaml("config/kubernetes/kustomization.yaml")["images"][0]["newTag"], version);
    assert_eq!(yaml("config/helm/portcullis/Chart.yaml")["appVersion"], version);
    let image = format!("image: portcullis:{version}\n");
    assert!(text("config/kubernetes/optional/session-tickets.yaml").contains(&image));
    // The oldest compiler that will do is the one that builds it.
    let oldest = instructions(&text("Containerfile"), "ARG")[0].to_owned();
    assert_eq!(oldest, format!("RUST={}", env!("CARGO_PKG_RUST_VERSION")));
}

/// As the runtimes of Kubernetes start a program of another user than root whose file permits the capability.
#[test]
fn a_low_port_is_taken_by_a_right_that_is_permitted_and_not_effective_yet() {
    let right = CapabilitySet::NET_BIND_SERVICE;
    let network = Network::new(&["gateway"]);
    network.on("gateway", || {
        let mut sets = capabilities(None).unwrap();
        assert!(sets.permitted.contains(right), "needs root");
        sets.effective.remove(right);
        set_capabilities(None, sets).unwrap();
        assert_eq!(listen(([127, 0, 0, 1], 443).into(), 2).unwrap().len(), 2);

        sets.permitted.remove(right);
        set_capabilities(None, sets).unwrap();
        let refused = listen(([127, 0, 0, 1], 80).into(), 1).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    });
}
