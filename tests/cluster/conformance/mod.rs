//! What ingress-nginx's own end-to-end tests assert, against this gateway: one test for each row of
//! `e2e/COVERAGE.md`, whose number begins its name.

mod certificates;
mod classes;
mod endpoints;
mod lifecycle;
mod ocsp;
mod redirects;

use rustls::pki_types::CertificateDer;

use super::backend::Backend;
use super::certificates::Authority;
use super::control_plane::ControlPlane;
use super::eventually;
use super::gateway::Gateway;
use super::secrets;

/// A namespace with a Service `web`, its endpoint, and a gateway that watches it.
struct Site {
    plane: &'static ControlPlane,
    namespace: &'static str,
    authority: Authority,
    backend: Backend,
    gateway: Gateway,
}

impl Site {
    /// With these settings in a ConfigMap; `None` where cluster tests are to be left out.
    fn start(namespace: &'static str, settings: &[(&str, &str)], arguments: &[&str]) -> Option<Self> {
        let plane = ControlPlane::shared()?;
        plane.namespace(namespace);
        let backend = Backend::start(namespace);
        plane.apply(&backend.manifest(namespace, "web"));
        set(plane, namespace, settings);
        let scope = [format!("--watch-namespace={namespace}"), format!("--configmap={namespace}/settings")];
        let arguments: Vec<_> = scope.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let gateway = Gateway::start(&plane.kubeconfig(), &arguments);
        Some(Self { plane, namespace, authority: Authority::new(), backend, gateway })
    }

    fn set(&self, settings: &[(&str, &str)]) {
        set(self.plane, self.namespace, settings);
    }

    /// An Ingress `name` for `host`, without TLS, with these annotations.
    fn plain(&self, name: &str, host: &str, annotations: &str) {
        self.plane.apply(&plain(self.namespace, name, host, "web", annotations));
    }

    /// An Ingress `name` for `host`, with the certificate of `secret`.
    fn secured(&self, name: &str, host: &str, secret: &str) {
        self.plane.apply(&secrets::ingress(self.namespace, name, host, secret));
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        self.plane.kubectl(&[&["-n", self.namespace], arguments].concat())
    }

    fn expect_https(&self, host: &str, certificate: &CertificateDer<'_>) {
        self.gateway.expect_https(&self.authority, host, certificate);
    }

    /// Waits until clients that ask for `sni` get this certificate, whoever signed it.
    fn expect_served(&self, sni: Option<&str>, certificate: &CertificateDer<'_>) {
        eventually("the certificate is another one", || match self.gateway.served(sni) == *certificate {
            true => Ok(()),
            false => Err(format!("{sni:?}")),
        });
    }

    /// Waits until clients that ask for `sni` get the generated certificate.
    fn expect_generated(&self, sni: Option<&str>) {
        eventually("the certificate is not the generated one", || {
            match is_generated(&self.gateway.served(sni)) {
                true => Ok(()),
                false => Err(format!("{sni:?}")),
            }
        });
    }
}

fn set(plane: &ControlPlane, namespace: &str, settings: &[(&str, &str)]) {
    let data: String = settings.iter().map(|(key, value)| format!("  {key}: '{value}'\n")).collect();
    plane.apply(&format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ namespace: {namespace}, name: settings }}\ndata:\n{data}"
    ));
}

/// An Ingress of our class for one host, without TLS.
fn plain(namespace: &str, name: &str, host: &str, service: &str, annotations: &str) -> String {
    format!(
        r#"
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{ namespace: {namespace}, name: {name}, annotations: {{ {annotations} }} }}
spec:
  ingressClassName: portcullis
  rules:
  - host: {host}
    http: {{ paths: [{{ path: /, pathType: Prefix, backend: {{ service: {{ name: {service}, port: {{ number: 80 }} }} }} }}] }}
"#
    )
}

/// Whether it is the certificate that is made where there is none, by the names that ingress-nginx gave it.
fn is_generated(certificate: &CertificateDer<'_>) -> bool {
    let contains = |text: &str| certificate.windows(text.len()).any(|window| window == text.as_bytes());
    contains("Kubernetes Ingress Controller Fake Certificate")
        && contains("Acme Co")
        && contains("ingress.local")
}
