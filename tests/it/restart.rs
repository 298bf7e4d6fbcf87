//! Restarts, crashes and signals of the real binary, under a load that is bounded but tolerates no loss.

mod backend;
mod gateway;
mod load;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portcullis::settings::Class;
use portcullis::settings::schema::FIELDS;
use portcullis::testing::ports;
use rustix::process::Signal;
use serde_json::Value;

use gateway::{Gateway, PATIENCE, Plan, in_state, is_alive, kill, own_memory};
use load::{Clients, Load, during};

/// As many new connections as this machine gives beside the gateway itself: each of these clients opens the next
/// one when it has its answer.
const SOME_OF_ALL: Load = Load { new_connections: 16, keep_alive: 4, http2: 2, downloads: 4, websockets: 6 };

#[test]
fn ten_restarts_under_load_lose_nothing() {
    let mut gateway = Plan::new(backend::start()).with_program().start();
    let (address, root) = (gateway.https, gateway.root.clone());
    let (tally, gateway) = during(address, &root, SOME_OF_ALL, move || {
        let mut serving = gateway.serving();
        for workers in ["3", "1", "4", "2"] {
            gateway.set("workers", workers);
            serving = gateway.until_after(serving);
        }
        // An address more, a port more, and both gone again.
        gateway.set("bind-address", "[127.0.0.1, 127.0.0.2]");
        serving = gateway.until_after(serving);
        let [port] = ports::free();
        gateway.set("mesh-port", &port.to_string());
        serving = gateway.until_after(serving);
        TcpStream::connect(("127.0.0.1", port)).expect("the port that was added");
        gateway.unset("mesh-port");
        gateway.set("bind-address", "127.0.0.1");
        serving = gateway.until_after(serving);
        for _ in 0..3 {
            gateway.replace_program(env!("CARGO_BIN_EXE_portcullis"));
            gateway.signal(Signal::HUP);
            serving = gateway.until_after(serving);
        }
        gateway
    });
    tally.assert_nothing_lost();
    assert!(tally.requests.get() > 100 && tally.handshakes.get() > 50, "{tally:?}");
    assert!(tally.downloads.get() >= 4 && tally.echoes.get() > 50, "{tally:?}");
    let status = gateway.until("the old ones have drained", |status| {
        status["generations"].as_array().is_some_and(|generations| generations.len() == 1)
    });
    assert_eq!((&status["last_restart_error"], gateway.serving()), (&Value::Null, 11));
    let (_, pid) = in_state(&status, "serving")[0];
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program, gateway.folder.path().join("portcullis"), "not the program that was replaced");
    assert_eq!(gateway.stop(), Some(0));
}

#[test]
fn a_thousand_dynamic_changes_disturb_nobody() {
    let backend = backend::start();
    let gateway = Plan::new(backend).start();
    let (address, root, before) = (gateway.https, gateway.root.clone(), gateway.serving());
    let (_, pid) = in_state(&gateway.status().unwrap(), "serving")[0];
    let load = Load { downloads: 50, websockets: 200, ..Load::default() };
    let (tally, gateway) = during(address, &root, load, move || {
        let mut memory = 0;
        for change in 0..1000 {
            gateway.write_site(backend, &format!("change-{change}"));
            sleep(Duration::from_millis(5));
            // By then everything has been allocated once.
            if change == 300 {
                memory = own_memory(pid);
            }
        }
        let grown = own_memory(pid).saturating_sub(memory);
        assert!(grown < 8 * 1024, "{grown} KiB more after 700 changes");
        gateway
    });
    tally.assert_nothing_lost();
    assert_eq!(
        tally.handshakes.get() - tally.downloads.get(),
        200,
        "every WebSocket is the first of its client"
    );
    let status = gateway.status().unwrap();
    assert_eq!(in_state(&status, "serving"), [(before, pid)]);
    assert!(status["generation"].as_u64().unwrap() > 20, "{status}");
}

/// What the clients of one connection after another see of something that must not matter to them.
fn unnoticed(gateway: Gateway, what: impl FnOnce(&mut Gateway) + Send + 'static) -> Gateway {
    let load = Load { new_connections: 2, keep_alive: 2, http2: 1, downloads: 0, websockets: 2 };
    let (address, root) = (gateway.https, gateway.root.clone());
    let (tally, gateway) = during(address, &root, load, move || {
        let mut gateway = gateway;
        what(&mut gateway);
        gateway
    });
    tally.assert_nothing_lost();
    gateway
}

fn restart_error(status: &Value) -> &str {
    status["last_restart_error"].as_str().unwrap_or_default()
}

#[test]
fn a_generation_that_cannot_serve_is_dropped_and_the_reason_is_told() {
    let gateway = Plan::new(backend::start()).with("restart-timeout", "2s").start();
    let before = gateway.serving();
    let gateway = unnoticed(gateway, move |gateway| {
        gateway.write_raw_settings("workers: many\n");
        let status = gateway.until("the edit is refused", |status| status["settings"]["error"].is_string());
        assert!(status["settings"]["error"].as_str().unwrap().contains("workers"), "{status}");

        // An address of this machine on a port of ours, taken by somebody else.
        let taken = TcpListener::bind(("127.0.0.9", gateway.https.port())).unwrap();
        gateway.set("bind-address", "[127.0.0.1, 127.0.0.9]");
        let status =
            gateway.until("the port is in use", |status| restart_error(status).contains("cannot listen"));
        assert!(restart_error(&status).contains("127.0.0.9"), "{status}");
        assert_eq!(status["pending_restart"][0]["key"], "bind-address");
        drop(taken);

        gateway.set("bind-address", "127.0.0.1");
        gateway.until("the edit is taken back", |status| status["last_restart_error"].is_null());

        // An API server that takes connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let kubeconfig = gateway.folder.path().join("kubeconfig");
        let server = silent.local_addr().unwrap();
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{server}\"}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        fs::write(&kubeconfig, config).unwrap();
        gateway.set("kubeconfig", &kubeconfig.display().to_string());
        gateway.set("source", "kubernetes");
        let status = gateway.until("it is given up", |status| {
            !restart_error(status).is_empty() && in_state(status, "starting").is_empty()
        });
        assert!(!restart_error(&status).is_empty());
        gateway.unset("source");
        gateway.unset("kubeconfig");
        gateway.until("the edit is taken back", |status| status["last_restart_error"].is_null());
    });
    assert_eq!(gateway.serving(), before, "it was never replaced");
}

#[test]
fn a_broken_program_is_not_upgraded_to() {
    let gateway = Plan::new(backend::start()).with_program().start();
    let before = gateway.serving();
    let gateway = unnoticed(gateway, move |gateway| {
        gateway.replace_program("/bin/false");
        gateway.signal(Signal::HUP);
        let status = gateway.until("it has failed", |status| !restart_error(status).is_empty());
        assert!(restart_error(&status).contains("exit code"), "{status}");
        fs::write(gateway.folder.path().join("portcullis"), "no program").unwrap();
        gateway.signal(Signal::HUP);
        gateway.until("it cannot run", |status| restart_error(status).contains("cannot be started"));
    });
    assert_eq!(gateway.serving(), before);

    // And what crashes is replaced by what was running, not by what lies there.
    let (_, pid) = in_state(&gateway.status().unwrap(), "serving")[0];
    kill(pid, Signal::KILL);
    assert!(gateway.until_after(before) > before);
    gateway.replace_program(env!("CARGO_BIN_EXE_portcullis"));
    let admin = gateway.admin.to_string();
    let restart =
        Command::new(env!("CARGO_BIN_EXE_portcullis")).args(["restart", "--admin", &admin]).output();
    let restart = restart.unwrap();
    let said = String::from_utf8(restart.stdout).unwrap();
    assert!(restart.status.success() && said.ends_with(" serves.\n"), "{said}{:?}", restart.stderr);
}

#[test]
fn generations_that_are_killed_are_replaced_and_connections_wait_for_them() {
    let gateway = Plan::new(backend::start()).start();
    let mut serving = gateway.serving();
    for _ in 0..4 {
        let (_, pid) = in_state(&gateway.status().unwrap(), "serving")[0];
        kill(pid, Signal::KILL);
        // Not refused, though nobody is there to take it: the kernel keeps it for the next generation.
        answered(&gateway);
        serving = gateway.until_after(serving);
    }
    let status = gateway.until("the crash is repaired", |status| {
        restart_error(status).is_empty() && status["last_crash"]["at"].is_string()
    });
    assert!(status["last_crash"]["reason"].as_str().unwrap().contains("killed by signal 9"), "{status}");
}

#[test]
fn settings_of_any_size_outlive_a_crash() {
    let mut gateway = Plan::new(backend::start()).start();
    let networks: Vec<_> = (0..8000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    gateway.set("proxy-real-ip-cidr", &format!("[{}]", networks.join(", ")));
    let taken = |status: &Value| status["changes"]["dynamic"].as_u64() > Some(0);
    let status = gateway.until("the setting is taken over", taken);
    let (serving, pid) = in_state(&status, "serving")[0];
    kill(pid, Signal::KILL);
    let after = gateway.until_after(serving);
    assert!(after > serving);
    assert_eq!(gateway.stop(), Some(0));
}

#[test]
fn a_kill_at_any_moment_of_a_handover_leaves_a_serving_gateway() {
    let mut gateway = Plan::new(backend::start()).start();
    for (round, workers) in (0..12u64).zip(["3", "2"].into_iter().cycle()) {
        let serving = gateway.serving();
        let (_, old) = in_state(&gateway.status().unwrap(), "serving")[0];
        gateway.set("workers", workers);
        // From before the new generation is begun to after the old one has gone; at first the new one is hit,
        // then the old one.
        sleep(Duration::from_millis(150 + 40 * (round / 2)));
        let status = gateway.until("somebody is there", |status| status["generations"].is_array());
        let new = in_state(&status, "starting").into_iter().chain(in_state(&status, "serving")).max();
        let hit = if round % 2 == 0 { new.map_or(old, |(_, pid)| pid) } else { old };
        if is_alive(hit) {
            kill(hit, Signal::KILL);
        }
        answered(&gateway);
        gateway.signal(Signal::HUP);
        gateway.until_after(serving);
    }
    assert_eq!(gateway.stop(), Some(0));
}

/// A new connection is taken and answered.
fn answered(gateway: &Gateway) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = Clients::new(gateway.https, &gateway.root);
    let tried = Instant::now();
    loop {
        match runtime.block_on(clients.resumes()) {
            Ok(_) => return,
            // One that the killed process had taken already is lost with it; the next one must be answered.
            Err(error) if tried.elapsed() > PATIENCE => panic!("{error:#}; log:\n{}", gateway.log()),
            Err(error) => assert!(!format!("{error:#}").contains("refused"), "{error:#}"),
        }
    }
}

#[test]
fn without_its_supervisor_a_generation_ends_and_frees_the_ports() {
    let mut gateway = Plan::new(backend::start()).start();
    let (_, pid) = in_state(&gateway.status().unwrap(), "serving")[0];
    gateway.process.kill().unwrap();
    gateway.process.wait().unwrap();
    let killed = Instant::now();
    while is_alive(pid) {
        assert!(killed.elapsed() < PATIENCE, "the generation goes on by itself");
        sleep(Duration::from_millis(20));
    }
    for address in [gateway.http, gateway.https, gateway.admin] {
        TcpListener::bind(address).unwrap();
    }
}

#[test]
fn a_signal_to_end_lets_answers_finish_and_takes_no_more_connections() {
    for signal in [Signal::TERM, Signal::INT] {
        let gateway = Plan::new(backend::start()).start();
        let (address, root) = (gateway.https, gateway.root.clone());
        let load = Load { downloads: 5, keep_alive: 2, ..Load::default() };
        let (tally, code) = during(address, &root, load, move || {
            let mut gateway = gateway;
            gateway.signal(signal);
            gateway.wait()
        });
        assert_eq!(code, Some(0));
        let refused = |loss: &String| loss.contains("connect");
        let losses = tally.losses.borrow();
        assert!(losses.iter().all(refused), "{losses:#?}");
        assert!(tally.downloads.get() >= 5, "{tally:?}");
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn sessions_are_resumed_by_the_next_generation() {
    let gateway = Plan::new(backend::start()).start();
    let serving = gateway.serving();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = Clients::new(gateway.https, &gateway.root);
    assert!(!runtime.block_on(clients.resumes()).unwrap());
    assert!(runtime.block_on(clients.resumes()).unwrap());
    gateway.signal(Signal::HUP);
    gateway.until_after(serving);
    assert!(runtime.block_on(clients.resumes()).unwrap(), "the next generation has other ticket keys");
    let status = gateway.status().unwrap();
    kill(in_state(&status, "serving")[0].1, Signal::KILL);
    gateway.until_after(serving + 1);
    assert!(runtime.block_on(clients.resumes()).unwrap(), "a crash costs the sessions");
}

/// As process 1 of a container gets children that nobody else waits for, so does a program that a shell became.
#[test]
fn children_of_others_are_reaped() {
    let plan = Plan::new(backend::start());
    let orphan = plan.folder.path().join("orphan");
    let serve = plan.command();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 1 & echo $! > \"$0\"; exec \"$@\""]).arg(&orphan);
    command.arg(serve.get_program()).args(serve.get_args());
    command.envs(serve.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(fs::File::create(plan.folder.path().join("log")).unwrap());
    let gateway = plan.start_as(command);
    let pid = fs::read_to_string(&orphan).unwrap().trim().to_owned();
    let begun = Instant::now();
    while fs::exists(format!("/proc/{pid}")).unwrap() {
        assert!(
            begun.elapsed() < PATIENCE,
            "a zombie stays: {:?}",
            fs::read_to_string(format!("/proc/{pid}/stat"))
        );
        sleep(Duration::from_millis(20));
    }
    assert_eq!(gateway.serving(), 1, "it was no child of interest");
    assert_eq!(gateway.stop(), Some(0));
}

#[test]
fn changes_are_counted_by_class_across_generations() {
    let backend = backend::start();
    let mut gateway = Plan::new(backend).start();
    let serving = gateway.serving();
    let changes =
        |status: &Value| (status["changes"]["dynamic"].as_u64(), status["changes"]["restart"].as_u64());
    assert_eq!(changes(&gateway.status().unwrap()), (Some(0), Some(0)));
    gateway.set("hsts", "false");
    gateway.until("a dynamic setting is counted", |status| changes(status) == (Some(1), Some(0)));
    gateway.write_site(backend, "another");
    gateway.until("a changed Ingress is counted", |status| changes(status) == (Some(2), Some(0)));
    gateway.set("workers", "3");
    gateway.until_after(serving);
    gateway.until("the next generation counts on", |status| changes(status) == (Some(2), Some(1)));
}

/// `portcullis diff` and the running gateway agree on every setting: what is dynamic is applied, what needs a
/// restart is pending.
#[test]
fn every_setting_is_applied_or_pending_as_its_class_says() {
    let mut gateway = Plan::new(backend::start()).with("restart", "manual").start();
    // Given by flags or the environment, which win over the file.
    let fixed = ["manifests", "http-port", "https-port", "admin-port"];
    let fields = || FIELDS.iter().filter(|field| !fixed.contains(&field.key) && field.key != "restart");
    for field in fields() {
        // As YAML would have it: texts in quotes.
        gateway.set(field.key, &format!("{:?}", field.example));
    }
    let mut expected: Vec<_> = fields().filter(|f| f.class != Class::Dynamic).map(|f| f.key).collect();
    let pending = |status: &Value| -> Vec<String> {
        let pending = status["pending_restart"].as_array().cloned().unwrap_or_default();
        pending.iter().map(|change| change["key"].as_str().unwrap().to_owned()).collect()
    };
    let status = gateway.until("all are pending", |status| pending(status).len() >= expected.len());
    expected.sort_unstable();
    let mut found = pending(&status);
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!((&status["settings"]["error"], gateway.serving()), (&Value::Null, 1), "{}", gateway.log());
}

#[test]
fn systemd_is_told_and_its_sockets_are_taken() {
    let plan = Plan::new(backend::start()).with("bind-address", "127.0.0.1");
    let notify = plan.folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut buffer = [0; 200];
        let length = systemd.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    // Without SO_REUSEPORT, as a socket unit opens it by default: nobody else could listen there now.
    let socket = TcpListener::bind(plan.ports[1]).unwrap();
    let serve = plan.command();
    let mut command = Command::new("sh");
    let script =
        "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=https-port; exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(serve.get_program()).args(serve.get_args());
    command.envs(serve.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("NOTIFY_SOCKET", &notify);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket))).stdout(Stdio::null());
    command.stderr(fs::File::create(plan.folder.path().join("log")).unwrap());

    let mut gateway = plan.start_as(command);
    assert_eq!(hear(), "READY=1\n");
    answered(&gateway);
    let serving = gateway.serving();
    gateway.signal(Signal::HUP);
    gateway.until_after(serving);
    let reloading = hear();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(hear(), "READY=1\n");
    gateway.signal(Signal::TERM);
    assert_eq!(hear(), "STOPPING=1\n");
    assert_eq!(gateway.wait(), Some(0));
}
