//! Kubernetes manifests as text, with what tests vary as parameters.

use std::fmt::Write;
use std::net::SocketAddr;

use portcullis::testing::certificates::PemPair;

/// A Service `name` with port 80 (`http`) and these endpoints, in namespace `default`.
pub fn service(name: &str, endpoints: &[SocketAddr]) -> String {
    let mut yaml = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n\
         spec:\n  clusterIP: 10.0.0.1\n  ports: [{{name: http, port: 80, targetPort: web}}]\n"
    );
    for (number, endpoint) in endpoints.iter().enumerate() {
        yaml += &endpoint_slice(name, number, *endpoint, "{ready: true}");
    }
    yaml
}

/// An EndpointSlice of one endpoint of Service `service`.
pub fn endpoint_slice(service: &str, number: usize, endpoint: SocketAddr, conditions: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: {service}-{number}, namespace: default, labels: {{kubernetes.io/service-name: {service}}}}}\n\
         addressType: IPv4\nports: [{{name: http, port: {}, protocol: TCP}}]\n\
         endpoints: [{{addresses: [\"{}\"], conditions: {conditions}}}]\n",
        endpoint.port(),
        endpoint.ip()
    )
}

/// A TLS Secret in namespace `default`.
pub fn secret(name: &str, pair: &PemPair) -> String {
    let indented = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: default}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(&pair.certificates_pem()),
        indented(&pair.key_pem)
    )
}

/// An Ingress in namespace `default`.
#[derive(Clone)]
pub struct Ingress {
    name: String,
    host: Option<String>,
    paths: Vec<String>,
    annotations: Vec<(String, String)>,
    tls: Option<String>,
    created: Option<String>,
    default_backend: Option<String>,
}

impl Ingress {
    pub fn new(name: &str, host: &str) -> Self {
        Self { host: Some(host.into()), ..Self::hostless(name) }
    }

    /// For every host that has no rules of its own.
    pub fn hostless(name: &str) -> Self {
        Self {
            name: name.into(),
            host: None,
            paths: Vec::new(),
            annotations: Vec::new(),
            tls: None,
            created: None,
            default_backend: None,
        }
    }

    pub fn path(self, kind: &str, path: &str, service: &str) -> Self {
        self.path_to(kind, path, service, "{number: 80}")
    }

    pub fn path_to(mut self, kind: &str, path: &str, service: &str, port: &str) -> Self {
        self.paths.push(format!(
            "{{pathType: {kind}, path: \"{path}\", backend: {{service: {{name: {service}, port: {port}}}}}}}"
        ));
        self
    }

    /// A rule with this YAML in place of a path.
    pub fn raw_path(mut self, yaml: &str) -> Self {
        self.paths.push(yaml.into());
        self
    }

    pub fn default_backend(mut self, service: &str) -> Self {
        self.default_backend = Some(service.into());
        self
    }

    /// An annotation under ingress-nginx's prefix.
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.push((format!("nginx.ingress.kubernetes.io/{name}"), value.into()));
        self
    }

    /// An annotation under our own prefix.
    pub fn own_annotation(mut self, name: &str, value: &str) -> Self {
        self.annotations.push((format!("portcullis.dev/{name}"), value.into()));
        self
    }

    /// The host's certificate is in this Secret.
    pub fn tls(mut self, secret: &str) -> Self {
        self.tls = Some(secret.into());
        self
    }

    pub fn created(mut self, timestamp: &str) -> Self {
        self.created = Some(timestamp.into());
        self
    }

    pub fn yaml(&self) -> String {
        let mut yaml = format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {}\n  namespace: default\n",
            self.name
        );
        if let Some(created) = &self.created {
            let _ = writeln!(yaml, "  creationTimestamp: \"{created}\"");
        }
        if !self.annotations.is_empty() {
            yaml += "  annotations:\n";
        }
        for (name, value) in &self.annotations {
            let _ = writeln!(yaml, "    {name}: \"{value}\"");
        }
        yaml += "spec:\n";
        if let Some(service) = &self.default_backend {
            let _ =
                writeln!(yaml, "  defaultBackend: {{service: {{name: {service}, port: {{number: 80}}}}}}");
        }
        if let (Some(secret), Some(host)) = (&self.tls, &self.host) {
            let _ = writeln!(yaml, "  tls: [{{hosts: [\"{host}\"], secretName: {secret}}}]");
        }
        if !self.paths.is_empty() {
            yaml += "  rules:\n  - ";
            if let Some(host) = &self.host {
                let _ = write!(yaml, "host: \"{host}\"\n    ");
            }
            yaml += "http:\n      paths:\n";
        }
        for path in &self.paths {
            let _ = writeln!(yaml, "      - {path}");
        }
        yaml
    }
}
