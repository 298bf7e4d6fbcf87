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
    // A command that refuses its flags is gone before it reads anything.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
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
    let with =
        |input: &Path, extension: &str| PathBuf::from(input.to_str().unwrap().replace(".in.yaml", extension));
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

const STRICT: &str = "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: open-port, namespace: foo}
spec: {selector: {matchLabels: {app: a}}, portLevelMtls: {9090: {mode: PERMISSIVE}}}
";

#[test]
fn compile_reads_stdin_and_directories() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    let (mesh, workload) = STRICT.split_once("---\n").unwrap();
    fs::write(directory.path().join("b.yaml"), mesh).unwrap();
    fs::write(directory.path().join("sub/a.yml"), workload).unwrap();
    fs::write(directory.path().join("notes.txt"), "no: [manifest").unwrap();
    fs::write(directory.path().join(".hidden.yaml"), "no: [manifest").unwrap();
    let from_directory = portcullis(&["compile", "-f", directory.path().to_str().unwrap()]);
    assert!(stdout(&from_directory).contains("name: converted_peer_authentication_open-port\n"));
    for flags in [&["compile"][..], &["compile", "-f", "-"]] {
        let from_stdin = portcullis_with(flags, STRICT);
        assert_eq!(stdout(&from_stdin), stdout(&from_directory), "{}", stderr(&from_stdin));
        assert_eq!(from_stdin.status.code(), Some(0));
    }
    let json = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication", "metadata": {"name": "open-port", "namespace": "foo"}, "spec": {"selector":
        {"matchLabels": {"app": "a"}}, "mtls": {"mode": "STRICT"}, "portLevelMtls": {"9090": {"mode": "DISABLE"}}}}]}"#;
    let from_json = portcullis_with(&["compile"], json);
    assert!(
        stdout(&from_json).contains("name: converted_peer_authentication_open-port\n"),
        "{}",
        stderr(&from_json)
    );
}

#[test]
fn documents_of_json_may_stand_between_the_separators_of_yaml() {
    let policy = |name: &str| {
        format!(
            r#"{{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {{"name": "{name}", "namespace": "foo"}}}}"#
        )
    };
    for separator in ["\n---\n", "\n", ""] {
        let text = [policy("first"), policy("second")].join(separator);
        let output = portcullis_with(&["compile"], &text);
        assert_eq!(
            stdout(&output),
            "name: first\nnamespace: foo\nscope: NAMESPACE\n---\nname: second\nnamespace: foo\nscope: NAMESPACE\n",
            "{separator:?}: {}",
            stderr(&output)
        );
        assert_eq!(output.status.code(), Some(0), "{separator:?}");
    }
    let output = portcullis_with(&["compile"], &format!("{}\n{{", policy("first")));
    assert_eq!(output.status.code(), Some(1), "half a document");
}

#[test]
fn compile_prints_the_static_policy_when_asked() {
    let with = portcullis_with(&["compile", "--with-static"], STRICT);
    let documents: Vec<_> = stdout(&with).split("---\n").collect();
    assert_eq!(documents.len(), 2);
    assert!(documents[1].contains("name: istio_converted_static_strict\nnamespace: istio-system\n"));
    let other_root = portcullis_with(&["compile", "--with-static", "--root-namespace", "root"], STRICT);
    assert!(stdout(&other_root).contains("name: istio_converted_static_strict\nnamespace: root\n"));
    assert_eq!(stdout(&portcullis_with(&["compile", "--with-static"], "")), "");
}

#[test]
fn what_is_refused_is_told_on_stderr() {
    let refused = "apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: foo}
spec: {rules: [{to: [{operation: {ports: [http]}}]}]}
";
    let output = portcullis_with(&["compile"], refused);
    assert_eq!(stdout(&output), "");
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: stdin: AuthorizationPolicy foo/web: spec.rules[0].to[0].operation.ports[0]: 'http' is not \
                    a port number from 0 to 65535 (InvalidPort)\n";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    let output = portcullis_with(&["evaluate", "--workload", "foo/web", "--port", "80"], refused);
    assert!(stdout(&output).starts_with("denied\n"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0));

    let output = portcullis_with(&["compile"], "a: [");
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
    assert!(stderr(&output).starts_with("error: cannot read stdin: "), "{}", stderr(&output));
    let output = portcullis(&["compile", "-f", "/nowhere.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).starts_with("error: cannot read /nowhere.yaml: "), "{}", stderr(&output));
}

#[test]
fn evaluate_answers_one_connection() {
    let flags = ["evaluate", "--workload", "foo/web", "--labels", "app=a", "--source", "10.0.0.5"];
    let ask =
        |more: &[&str]| portcullis_with(&[&flags[..], &["--destination", "10.0.1.9"], more].concat(), STRICT);
    let denied = ask(&["--port", "8080"]);
    let policy = "foo/converted_peer_authentication_open-port";
    let expected = format!("denied\n  policy: {policy}\n  reason: explicitly denied by: {policy}\n");
    assert_eq!(stdout(&denied), expected);
    assert_eq!(denied.status.code(), Some(0));
    let open = "allowed\n  policy: none\n  reason: no DENY policy matches and there are no ALLOW policies\n";
    assert_eq!(stdout(&ask(&["--port", "9090"])), open);
    for principal in ["cluster.local/ns/app/sa/web", "spiffe://cluster.local/ns/app/sa/web"] {
        assert_eq!(stdout(&ask(&["--port", "8080", "--principal", principal])), open);
    }
    for wrong in [
        &[][..],
        &["--port", "99999"],
        &["--port", "80", "--principal", "web"],
        &["--port", "80", "--labels", "a"],
    ] {
        assert_eq!(ask(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Asks about lines of connections, and hands back the answers.
fn answers(policies: &str, flags: &[&str], connections: &str) -> (Vec<serde_json::Value>, Output) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, connections).unwrap();
    let path = file.path().to_str().unwrap();
    let output = portcullis_with(&[&["evaluate", "--connections", path], flags].concat(), policies);
    let lines = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, output)
}

#[test]
fn evaluate_answers_line_by_line() {
    let connections = r#"{"principal": null, "source": "10.0.0.5", "destination": "10.0.1.9", "port": 8080}
{"source": "10.0.0.5", "destination": "10.0.1.9", "port": 9090}

{"principal": "cluster.local/ns/app/sa/web", "source": "::1", "destination": "::1", "port": 8080}
"#;
    let flags = ["--workload", "foo/web", "--labels", "app=a"];
    let (lines, output) = answers(STRICT, &flags, connections);
    let policy = "foo/converted_peer_authentication_open-port";
    assert_eq!(
        lines,
        [
            serde_json::json!({"allowed": false, "policy": policy, "reason": format!("explicitly denied by: {policy}")}),
            serde_json::json!({"allowed": true, "policy": null,
                "reason": "no DENY policy matches and there are no ALLOW policies"}),
            serde_json::json!({"allowed": true, "policy": null,
                "reason": "no DENY policy matches and there are no ALLOW policies"}),
        ]
    );
    assert_eq!(output.status.code(), Some(0));

    let (lines, output) = answers("", &[], connections);
    assert!(lines.len() == 3 && lines.iter().all(|line| line["allowed"] == true));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_line_that_is_no_connection_is_not_allowed() {
    let (lines, output) =
        answers("", &[], "{\"port\": 80}\nnonsense\n{\"principal\": \"web\", \"port\": 80}\n{}\n");
    let allowed: Vec<_> = lines.iter().map(|line| line["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, false, false, false]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(":2: this is not a connection: "), "{}", stderr(&output));
}

#[test]
fn a_workload_that_nobody_named_is_the_one_that_the_policies_are_for() {
    let (lines, output) = answers(STRICT, &[], "{\"port\": 8080}\n{\"port\": 9090}\n");
    assert_eq!((&lines[0]["allowed"], &lines[1]["allowed"]), (&false.into(), &true.into()));
    assert!(
        stderr(&output).contains("about a workload of namespace foo with labels app=a"),
        "{}",
        stderr(&output)
    );
    let two = format!("{STRICT}---\n{}", STRICT.replace("foo", "bar").replace("name: default", "name: more"));
    let (lines, output) = answers(&two, &[], "{\"port\": 8080}\n");
    assert!(lines.is_empty());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn documents_without_a_namespace_are_in_that_of_the_workload() {
    let strict = "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict}
spec: {selector: {matchLabels: {app: a}}, mtls: {mode: STRICT}, portLevelMtls: {9090: {mode: DISABLE}}}
";
    for workload in ["foo/web", "web"] {
        let flags = ["compile", "--workload", workload, "--labels", "app=a"];
        let namespace = if workload == "web" { "default" } else { "foo" };
        let expected = format!("{namespace}/converted_peer_authentication_strict\n");
        assert_eq!(stdout(&portcullis_with(&flags, strict)), expected);
    }
    let (lines, _) = answers(strict, &["--workload", "foo/web", "--labels", "app=a"], "{\"port\": 8080}\n");
    assert_eq!(lines[0]["allowed"], false);
    let (lines, _) =
        answers("name: nothing\nscope: NAMESPACE\n", &["--workload", "foo/web"], "{\"port\": 8080}\n");
    assert_eq!(lines[0]["allowed"], false);
}

#[test]
fn ready_documents_decide_too() {
    let ready = "action: DENY
groups:
- rules:
  - matches:
    - notPrincipals:
      - presence: {}
name: p
namespace: foo
scope: WORKLOAD_SELECTOR
---
name: other
namespace: bar
scope: NAMESPACE
";
    let connections = "{\"port\": 80}\n{\"principal\": \"td/ns/a/sa/b\", \"port\": 80}\n";
    let (lines, _) = answers(ready, &["--workload", "foo/web"], connections);
    assert_eq!((&lines[0]["policy"], &lines[1]["allowed"]), (&"foo/p".into(), &true.into()));
    let (lines, _) = answers(ready, &["--workload", "bar/web"], connections);
    assert_eq!(lines[1]["reason"], "allow policies exist, but none allowed");
    let unreadable = "name: p\ngroups:\n- rules:\n  - matches:\n    - sourceIps:\n      - address: AA==\n";
    let (lines, output) = answers(unreadable, &[], connections);
    assert!(lines.len() == 2 && lines.iter().all(|line| line["allowed"] == false));
    assert!(
        stderr(&output).contains("groups[0].rules[0].matches[0].sourceIps[0].address: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn dry_runs_are_shown_beside_the_decision() {
    let tried = "apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: tried, namespace: foo, annotations: {istio.io/dry-run: 'true'}}
spec: {action: DENY, rules: [{}]}
";
    let output = portcullis_with(&["evaluate", "--port", "80"], tried);
    assert!(stdout(&output).starts_with("allowed\n"));
    assert!(stdout(&output).ends_with("  dry run: DENY foo/tried matches\n"), "{}", stdout(&output));
}

#[test]
fn explain_says_who_says_what() {
    let policies = format!(
        "{STRICT}---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: callers, namespace: foo}}
spec:
  rules:
  - from: [{{source: {{principals: [cluster.local/ns/app/sa/web]}}}}, {{source: {{namespaces: ['ops-*']}}}}]
    to: [{{operation: {{ports: ['8080', '9090']}}}}]
"
    );
    let output = portcullis_with(&["explain", "--workload", "foo/web", "--labels", "app=a"], &policies);
    let expected = "Workload foo/web with labels app=a

Transport
  port 9090        mTLS and plaintext  PeerAuthentication foo/open-port, spec.portLevelMtls.9090 PERMISSIVE
  any other port   mTLS only           PeerAuthentication istio-system/default, spec.mtls.mode STRICT

Authorization
  ALLOW by AuthorizationPolicy foo/callers, for its namespace
    connections where the port is 8080 or 9090, and (the peer's principal is cluster.local/ns/app/sa/web, or the \
                    peer's namespace is ops-…)
  Whatever no ALLOW policy allows is refused.
";
    assert_eq!(stdout(&output), expected);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_vectors_hold_through_the_binary() {
    #[derive(serde::Deserialize)]
    struct Vector {
        id: String,
        policies: Vec<serde_json::Value>,
        connections: Vec<String>,
    }
    let text = include_str!("../golden/vectors/policy.yaml");
    for vector in serde_saphyr::from_str::<Vec<Vector>>(text).unwrap() {
        let policies = vector.policies.iter().map(|policy| format!("{policy}\n")).collect::<String>();
        let questions: Vec<(&str, &str)> =
            vector.connections.iter().map(|line| line.split_once(" => ").unwrap()).collect();
        let connections =
            questions.iter().map(|(question, _)| connection(question) + "\n").collect::<String>();
        let (lines, output) = answers(&policies, &[], &connections);
        assert_eq!(lines.len(), questions.len(), "{}: {}", vector.id, stderr(&output));
        for ((question, answer), line) in questions.into_iter().zip(lines) {
            assert_eq!(line["allowed"], answer == "allow", "{}: {question}: {line}", vector.id);
        }
    }
}

/// `PEER[:PORT] [from ADDRESS] [to ADDRESS]` as a line of JSON.
fn connection(question: &str) -> String {
    let words: Vec<&str> = question.split(' ').collect();
    let (peer, port) = words[0].split_once(':').unwrap_or((words[0], "8080"));
    let address = |word: &str| words.iter().position(|found| *found == word).map(|at| words[at + 1]);
    let principal = match peer {
        "anon" => None,
        "A" => Some("cluster.local/ns/app/sa/web"),
        "B" => Some("cluster.local/ns/other/sa/job"),
        "F" => Some("partner.example/ns/app/sa/web"),
        other => Some(other),
    };
    serde_json::json!({
        "principal": principal,
        "source": address("from").unwrap_or("10.0.0.5"),
        "destination": address("to").unwrap_or("10.0.1.9"),
        "port": port.parse::<u16>().unwrap(),
    })
    .to_string()
}

#[test]
fn the_examples_in_the_documentation_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/policy.md")).unwrap();
    let examples: Vec<&str> =
        page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 5);
    for example in examples {
        let (command, expected) = example.split_once('\n').unwrap();
        let args = command.strip_prefix("$ portcullis policy ").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_portcullis"))
            .current_dir(root.join("docs/examples/policy"))
            .arg("policy")
            .args(args.split(' '))
            .output()
            .unwrap();
        assert_eq!(stdout(&output), expected, "{command}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{command}");
    }
}
