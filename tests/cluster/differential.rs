//! A gateway that has lived through whatever happened serves and says the same as one that starts now.
//!
//! Objects are made, changed, deleted and made anew under the same name, many at once and by lot, while connections
//! to the API server are cut or the gateway has no time. In the end nothing is left that cannot be used, so that no last good state counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use fastrand::Rng;
use serde_json::Value;

use super::backend::{Backend, service_manifest};
use super::certificates::{Authority, Pair};
use super::control_plane::ControlPlane;
use super::gateway::Gateway;
use super::proxy::Proxy;
use super::within;

const NAMESPACES: [&str; 2] = ["lot-a", "lot-b"];
const HOSTS: [&str; 5] =
    ["a.lot.example", "b.lot.example", "c.lot.example", "x.w.lot.example", "*.w.lot.example"];
const BURSTS: usize = 6;

struct World {
    plane: ControlPlane,
    random: Rng,
    /// Certificates for some of the hosts.
    some: Vec<Pair>,
    /// Certificates for all of them.
    all: Vec<Pair>,
    backends: Vec<Backend>,
}

impl World {
    fn new(plane: ControlPlane) -> Self {
        let authority = Authority::new();
        // Some have a name that no certificate is served for, which is worth a word.
        let odd = ["a.lot.example", "*.example"];
        let some = [&HOSTS[..1], &HOSTS[1..], &odd, &odd];
        let some = some.map(|hosts| authority.issue_for(hosts)).into();
        let all = (0..3).map(|_| authority.issue_for(&HOSTS)).collect();
        let backends = vec![Backend::start("one"), Backend::start("other")];
        Self { plane, random: Rng::with_seed(7), some, all, backends }
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.random.usize(..all.len())]
    }

    fn object(&mut self) -> String {
        let namespace = *self.one_of(&NAMESPACES);
        match self.random.u8(..10) {
            0..4 => self.secret(namespace),
            4..8 => self.ingress(namespace),
            8 => service_manifest(namespace, &format!("v{}", self.random.u8(..3))),
            _ => {
                let backend = self.random.usize(..self.backends.len());
                let service = format!("v{}", self.random.u8(..3));
                self.backends[backend].endpoints(namespace, &service, 1)
            }
        }
    }

    fn secret(&mut self, namespace: &str) -> String {
        let name = format!("s{}", self.random.u8(..4));
        let pair = self.random.usize(..self.some.len());
        let manifest = self.some[pair].manifest(namespace, &name);
        match self.random.u8(..6) {
            0..3 => manifest,
            3..5 => manifest.replace("kubernetes.io/tls", "Opaque"),
            _ => format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{ namespace: {namespace}, name: {name} }}\n\
                 type: kubernetes.io/tls\nstringData: {{ tls.crt: certificate, tls.key: key }}\n"
            ),
        }
    }

    fn ingress(&mut self, namespace: &str) -> String {
        let name = self.random.u8(..5);
        let class = self.one_of(&["portcullis", "portcullis", "portcullis", "other"]);
        let (host, tls) = (self.one_of(&HOSTS), self.one_of(&HOSTS));
        let path = self.one_of(&["/", "/", "/shop"]);
        let (service, secret) = (self.random.u8(..3), self.random.u8(..4));
        let redirect = self.one_of(&["true", "false", "maybe"]);
        format!(
            r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{ namespace: {namespace}, name: i{name}, annotations: {{ nginx.ingress.kubernetes.io/ssl-redirect: "{redirect}" }} }}
spec:
  ingressClassName: {class}
  tls: [{{ hosts: ["{tls}"], secretName: s{secret} }}]
  rules:
  - host: "{host}"
    http: {{ paths: [{{ path: {path}, pathType: Prefix, backend: {{ service: {{ name: v{service}, port: {{ name: http }} }} }} }}] }}
"#
        )
    }

    /// While the gateway stands still, so that it meets all of it at once, or while its connections are cut.
    fn burst(&mut self, gateway: &Gateway, proxy: &Proxy, still: bool) {
        let workers = gateway.workers();
        gateway.freeze(if still { &workers } else { &[] }, true);
        for _ in 0..6 {
            let count = self.random.usize(4..20);
            let objects: Vec<_> = (0..count).map(|_| self.object()).collect();
            let how: &[&str] = match self.random.u8(..4) {
                0 => &["delete", "--ignore-not-found", "--wait=false"],
                1 => &["apply"],
                // Deleted and made anew at once.
                _ => &["replace", "--force", "--grace-period=0"],
            };
            // Some of it is refused, such as another type for a Secret.
            let _ = self.plane.try_kubectl(&[how, &["-f", "-"]].concat(), &objects.join("\n---\n"));
            if !still && self.random.bool() {
                proxy.cut();
            }
        }
        gateway.freeze(if still { &workers } else { &[] }, false);
        self.repair();
    }

    /// Puts a certificate for all hosts into every Secret that there is, and deletes Ingresses that name another one.
    fn repair(&mut self) {
        for namespace in NAMESPACES {
            let list = |kind: &str, of: &str| {
                let each = format!("jsonpath={{range .items[*]}}{{.metadata.name}}={{{of}}} {{end}}");
                let found = self.plane.kubectl(&["-n", namespace, "get", kind, "-o", &each]);
                let found = found.split_whitespace().filter_map(|it| it.split_once('='));
                found.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>()
            };
            let (secrets, ingresses) =
                (list("secrets", ".type"), list("ingresses", ".spec.tls[0].secretName"));
            for (name, _) in ingresses.iter().filter(|(_, secret)| !secrets.contains_key(*secret)) {
                self.plane.kubectl(&["-n", namespace, "delete", "ingress", name]);
            }
            for (name, kind) in secrets {
                let pair = self.random.usize(..self.all.len());
                let manifest = self.all[pair].manifest(namespace, &name).replace("kubernetes.io/tls", &kind);
                self.plane.kubectl_with(&["replace", "-f", "-"], &manifest);
            }
        }
    }

    /// Everything that a gateway serves and says, without what is its own.
    fn view(&self, gateway: &Gateway) -> BTreeSet<String> {
        let list = |path: &str, key: &str| gateway.admin_json(path)[key].as_array().unwrap().clone();
        let mut view = BTreeSet::new();
        for it in list("/api/v1/certificates", "certificates").iter().filter(|it| !it["secret"].is_null()) {
            view.insert(format!(
                "{} {} for {} {}",
                it["secret"], it["fingerprint"], it["hosts"], it["default"]
            ));
        }
        for it in list("/api/v1/diagnostics", "diagnostics").iter().filter(|it| !it["object"].is_null()) {
            view.insert(it.to_string());
        }
        for mut it in list("/api/v1/hosts", "hosts") {
            for route in it["routes"].as_array_mut().unwrap() {
                for count in ["requests", "failed"] {
                    route[count] = Value::Null;
                }
            }
            view.insert(it.to_string());
        }
        for host in HOSTS.map(|host| host.replace('*', "any")) {
            let served = gateway.served(Some(&host));
            let known = self.all.iter().position(|pair| pair.certificate == served);
            let status = gateway.http(&host).map(|answer| answer.status);
            view.insert(format!("{host}: certificate {known:?}, HTTP {status:?}"));
        }
        view
    }
}

#[test]
fn a_gateway_that_has_seen_everything_is_the_same_as_one_that_starts_now() {
    let Some(plane) = ControlPlane::start() else { return };
    NAMESPACES.iter().for_each(|namespace| plane.namespace(namespace));
    let settings = plane.path().join("settings.yaml");
    fs::write(&settings, "secret-grace-period: 1s\n").unwrap();
    let flags = [format!("--settings={}", settings.display())];
    let flags = flags.each_ref().map(String::as_str);
    let proxy = Proxy::start(&plane.kubeconfig());
    let old = Gateway::start(&proxy.kubeconfig(&plane.kubeconfig()), &flags);
    let mut world = World::new(plane);
    for burst in 0..BURSTS {
        world.burst(&old, &proxy, burst % 2 == 0);
        let new = Gateway::start(&world.plane.kubeconfig(), &flags);
        within(Duration::from_secs(30), &format!("burst {burst}"), || {
            let (old, new) = (world.view(&old), world.view(&new));
            let [only_old, only_new] = [(&old, &new), (&new, &old)].map(|(one, other)| one - other);
            match only_old.is_empty() && only_new.is_empty() {
                true => Ok(()),
                false => Err(format!("only the old one: {only_old:#?}\nonly the new one: {only_new:#?}")),
            }
        });
    }
}
