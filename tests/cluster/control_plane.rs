//! A kube-apiserver and an etcd of our own, for as long as the test process runs.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Once, OnceLock};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use super::eventually;

/// Runs a program, says its process id, and ends it when it is told to or when its input ends: with the test
/// process at the latest, however that ends. Then it also removes a folder, as nobody else will.
const WATCHDOG: &str = r#"
    "$1" </dev/null >"$2" 2>&1 & echo $!
    read -r word
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
    [ "$word" = stop ] || rm -rf "$3"
"#;

/// An API server with its etcd.
pub struct ControlPlane {
    dir: TempDir,
    etcd: Option<Daemon>,
    api_server: Option<Daemon>,
}

impl ControlPlane {
    /// The one that tests share; `None` where cluster tests are to be left out.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<ControlPlane>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref()
    }

    /// A new one; `None` where cluster tests are to be left out.
    pub fn start() -> Option<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let init = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/controlplane/init.sh");
        let output = Command::new(init).arg(dir.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("run e2e/controlplane/build.sh") {
            assert!(std::env::var_os("CI").is_none(), "{error}");
            static SAID: Once = Once::new();
            // Past the capture of the test harness: whoever runs the tests has to see it.
            SAID.call_once(|| {
                let _ = writeln!(std::io::stderr(), "cluster tests left out: {}", error.trim());
            });
            return None;
        }
        assert!(output.status.success(), "{error}");
        let mut plane = Self { dir, etcd: None, api_server: None };
        plane.start_etcd();
        plane.start_api_server();
        Some(plane)
    }

    pub fn start_etcd(&mut self) {
        self.etcd = Some(Daemon::start(self.path(), "etcd"));
    }

    /// Starts it and waits until it serves.
    pub fn start_api_server(&mut self) {
        let daemon = self.api_server.insert(Daemon::start(self.dir.path(), "kube-apiserver"));
        let pid = daemon.pid;
        let log = self.path().join("kube-apiserver.log");
        eventually("the API server is not ready", || {
            let alive = test_kill_process(pid).is_ok();
            assert!(alive, "{}", fs::read_to_string(&log).unwrap_or_default());
            self.try_kubectl(&["get", "--raw", "/readyz"], "").map(drop)
        });
        // The first thing that every namespace needs.
        eventually("no default namespace", || {
            self.try_kubectl(&["get", "namespace", "default"], "").map(drop)
        });
    }

    /// Ends it as a crash would.
    pub fn kill_api_server(&mut self) {
        self.api_server = None;
    }

    pub fn kill_etcd(&mut self) {
        self.etcd = None;
    }

    /// Stops the API server in its tracks, connections and all, or lets it go on.
    pub fn freeze_api_server(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(self.api_server.as_ref().unwrap().pid, signal).unwrap();
    }

    /// Where everything of this control plane lies; `etcd` is the data.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path().join("admin.kubeconfig")
    }

    /// Runs kubectl, which has to succeed. What it printed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments, "").unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// The same with this input.
    #[track_caller]
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> String {
        self.try_kubectl(arguments, input).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// Merges `patch` (JSON) into the status of an object.
    #[track_caller]
    pub fn patch_status(&self, namespace: &str, kind: &str, name: &str, patch: &str) {
        self.kubectl(&[
            "-n",
            namespace,
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            "-p",
            patch,
        ]);
    }

    /// `kubectl apply` of a manifest.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        let applied = self.try_kubectl(&["apply", "-f", "-"], manifest);
        applied.unwrap_or_else(|error| panic!("kubectl apply: {error}\n{manifest}"));
    }

    /// Runs kubectl with this input. What it printed, or why it failed.
    pub fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let output = self.run_kubectl(arguments, input);
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// `kubectl apply` of a manifest. The warnings of the API server, or why it was refused.
    pub fn try_apply(&self, manifest: &str) -> Result<String, String> {
        let output = self.run_kubectl(&["apply", "-f", "-"], manifest);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    fn run_kubectl(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(self.path().join("bin/kubectl"))
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .args(arguments)
            .env("HOME", self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// A namespace that no other test has.
    pub fn namespace(&self, name: &str) {
        self.kubectl(&["create", "namespace", name]);
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // An API server that loses its etcd first may never end.
        self.api_server = None;
        self.etcd = None;
    }
}

/// A process that does not outlive us.
struct Daemon {
    watchdog: Child,
    pid: Pid,
}

impl Daemon {
    /// Runs `name`.sh of `dir`.
    fn start(dir: &Path, name: &str) -> Self {
        let script = dir.join(format!("{name}.sh"));
        let log = dir.join(format!("{name}.log"));
        // The folder goes with the etcd in it where this process has no time to remove it.
        let remove = if name == "etcd" { dir.as_os_str() } else { OsStr::new("") };
        let mut watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "sh"])
            .args([script.as_os_str(), log.as_os_str(), remove])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(watchdog.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        Self { watchdog, pid }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut input) = self.watchdog.stdin.take() {
            let _ = input.write_all(b"stop\n");
        }
        let _ = self.watchdog.wait();
    }
}
