//! Machines on one network, as network namespaces of this one: for what depends on addresses. Needs root, or the right
//! to make namespaces; where that is missing a test that wants them fails.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

static NETWORKS: AtomicUsize = AtomicUsize::new(0);

/// Machine number N, from 1, has the addresses 10.77.0.N and fd77::N. The first is the switch as well.
pub struct Network {
    machines: Vec<(&'static str, String)>,
}

impl Network {
    pub fn new(names: &[&'static str]) -> Self {
        let number = NETWORKS.fetch_add(1, Ordering::SeqCst);
        let namespace = |name: &str| format!("portcullis-{}-{number}-{name}", std::process::id());
        let machines: Vec<_> = names.iter().map(|name| (*name, namespace(name))).collect();
        for (_, namespace) in &machines {
            ip(&format!("netns add {namespace}"));
        }
        let network = Self { machines };
        let switch = &network.machines[0].1;
        for (number, (_, machine)) in (1..).zip(&network.machines) {
            let device = if number == 1 { "br0" } else { "eth0" };
            ip(&format!("-n {machine} link set lo up"));
            if number == 1 {
                ip(&format!("-n {machine} link add br0 type bridge"));
            } else {
                ip(&format!("link add port{number} netns {switch} type veth peer name eth0 netns {machine}"));
                ip(&format!("-n {switch} link set port{number} master br0 up"));
            }
            ip(&format!("-n {machine} addr add 10.77.0.{number}/24 dev {device}"));
            ip(&format!("-n {machine} addr add fd77::{number}/64 dev {device} nodad"));
            ip(&format!("-n {machine} link set {device} up"));
        }
        network
    }

    /// Runs `task` on a thread of that machine: sockets and processes that it makes stay there.
    pub fn on<T: Send>(&self, machine: &str, task: impl FnOnce() -> T + Send) -> T {
        let (_, namespace) = self.machines.iter().find(|(name, _)| *name == machine).expect("a machine");
        let namespace = File::open(format!("/run/netns/{namespace}")).expect("a namespace");
        let run = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("the right to enter a namespace");
            task()
        };
        thread::scope(|scope| match scope.spawn(run).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for (_, namespace) in &self.machines {
            // What is left of a network that could not be made is of no use to anybody.
            let _ = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip, of iproute2");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
