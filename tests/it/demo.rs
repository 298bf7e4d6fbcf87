//! `portcullis demo` as a newcomer uses it: start it, run what it prints, let it end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn every_printed_command_works_and_rotations_fail_nobody() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["demo", "--rotate-every", "1", "--duration", "60"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("Replacing")).collect();
    let commands: Vec<_> = printed
        .iter()
        .map(|line| line.trim())
        .filter(|line| line.starts_with("curl ") || line.starts_with("openssl "))
        .collect();
    assert!(commands.len() >= 8, "{printed:#?}");
    let mut answers = String::new();
    for command in &commands {
        let output = Command::new("bash").args(["-o", "pipefail", "-c", command]).output().expect("bash");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !text.is_empty(), "{command}\n{output:?}");
        answers += &text;
    }
    for expected in [
        "served by  web-",
        "request    POST /form",
        "some text",
        "location: https://shop.demo.test/hello",
        "DNS:shop.demo.test",
        "rsaEncryption",
        "id-ecPublicKey",
    ] {
        assert!(answers.contains(expected), "{expected} is not in\n{answers}");
    }

    // Rotations are told one by one; each has another serial number.
    let serial = |line: &String| {
        let after = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}")).1;
        u64::from_str_radix(after.split(' ').next().unwrap(), 16).unwrap()
    };
    let told: Vec<_> = lines.by_ref().filter(|line| line.contains("serial ")).take(3).collect();
    let serials: Vec<_> = told.iter().map(serial).collect();
    assert!(serials.windows(2).all(|pair| pair[0] < pair[1]), "{told:#?}");

    // As Ctrl-C, for this process alone.
    kill_process(Pid::from_child(&demo), Signal::INT).unwrap();
    let rest: Vec<_> = lines.collect();
    assert!(demo.wait().unwrap().success(), "{rest:#?}");
    let summary = rest.join("\n");
    assert!(summary.contains("Done in") && summary.contains(", 0 failed;"), "{summary}");
    assert!(summary.contains("connections  0 lost"), "{summary}");
    assert!(!summary.contains('\x1b'), "no colours where nobody sees them");
    let folder = printed.iter().find_map(|line| line.trim().strip_prefix("Log")).unwrap().trim();
    let folder = std::path::Path::new(folder).parent().unwrap();
    assert!(!folder.exists(), "{} is left behind", folder.display());
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_portcullis"))
        .args(["demo", "--duration", "1", "--https-port", &port])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut error = String::new();
    demo.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("https-port"), "{error}");
}
