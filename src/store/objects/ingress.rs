use super::field::quoted;
use super::metadata::is_subdomain;
use super::{Field, Findings, Metadata, ServicePortRef};
use crate::names::HostPattern;

/// `networking.k8s.io/v1 Ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    pub metadata: Metadata,
    /// `spec.ingressClassName`; the legacy annotation is read from the metadata.
    pub class: Option<String>,
    pub default_backend: Option<Backend>,
    pub tls: Vec<IngressTls>,
    pub rules: Vec<IngressRule>,
}

/// One entry of `spec.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressTls {
    /// Its place in the list as written, which findings name. So have hosts, rules and paths theirs.
    pub index: usize,
    pub hosts: Vec<TlsHost>,
    pub secret: TlsSecret,
}

/// One entry of `spec.tls[].hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsHost {
    pub index: usize,
    /// As written; `compile` makes it canonical.
    pub host: String,
}

/// What an entry of `spec.tls` says about its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsSecret {
    /// It names none: the default certificate is asked for.
    Default,
    Named(String),
    /// It names one in a way that cannot be used, which counts as a Secret that is missing.
    Unusable,
}

impl TlsSecret {
    /// The Secret, where it has a name.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::Default | Self::Unusable => None,
        }
    }
}

/// One entry of `spec.rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressRule {
    pub index: usize,
    /// As written; `None` or empty means every host.
    pub host: Option<String>,
    pub paths: Vec<IngressPath>,
}

/// One entry of `spec.rules[].http.paths`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    pub index: usize,
    /// As written; empty counts as `/`.
    pub path: String,
    pub kind: PathType,
    pub backend: Backend,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathType {
    Exact,
    Prefix,
    ImplementationSpecific,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Service {
        name: String,
        port: ServicePortRef,
    },
    /// A `resource` backend, which Portcullis does not serve.
    Resource,
}

impl Ingress {
    /// Reads the object behind `metadata`. A rule or path that cannot be used is left out alone.
    pub(super) fn decode(metadata: Metadata, object: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let mut ingress =
            Self { metadata, class: None, default_backend: None, tls: Vec::new(), rules: Vec::new() };
        let Some(spec) = object.get("spec") else {
            findings.error(object, "MissingField", "the Ingress has no spec");
            return None;
        };
        spec.only(&["ingressClassName", "defaultBackend", "tls", "rules"], findings);
        if let Some(field) = spec.get("ingressClassName") {
            ingress.class = Some(field.text(findings)?.to_owned());
        }
        ingress.default_backend =
            spec.get("defaultBackend").and_then(|field| Backend::decode(&field, findings));
        if let Some(list) = spec.get("tls") {
            ingress.tls = list.list(findings, |item, findings| Some(IngressTls::decode(item, findings)));
            if !list.is_list() {
                ingress.tls.push(IngressTls::unusable(0));
            }
        }
        if let Some(list) = spec.get("rules") {
            ingress.rules = list.list(findings, IngressRule::decode);
            // All rules dropped is not the same as none given, which would claim every host.
            if ingress.rules.is_empty() && list.items(findings).next().is_some() {
                findings.error(&list, "NoUsableRule", "no rule can be used");
                return None;
            }
        }
        // The API server refuses it; a file looks like that when it is written up to here.
        if ingress.rules.is_empty() && ingress.default_backend.is_none() {
            findings.error(
                &spec,
                "EmptyIngress",
                "it has neither rules nor a default backend that can be used",
            );
            return None;
        }
        Some(ingress)
    }
}

impl IngressTls {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Self {
        if !item.is_mapping(findings) {
            return Self::unusable(item.index());
        }
        item.only(&["hosts", "secretName"], findings);
        let hosts = item.get("hosts").map(|list| list.list(findings, TlsHost::decode)).unwrap_or_default();
        let secret = item.get("secretName").map(|field| TlsSecret::decode(&field, findings));
        Self { index: item.index(), hosts, secret: secret.unwrap_or(TlsSecret::Default) }
    }

    /// One of which nothing can be read: it must not take a certificate away.
    fn unusable(index: usize) -> Self {
        Self { index, hosts: Vec::new(), secret: TlsSecret::Unusable }
    }
}

impl TlsHost {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let host = decode_host(item, findings)?.to_owned();
        Some(Self { index: item.index(), host })
    }
}

impl TlsSecret {
    fn decode(field: &Field<'_>, findings: &mut Findings) -> Self {
        match field.text(findings) {
            Some("") => Self::Default,
            Some(name) if is_subdomain(name) => Self::Named(name.to_owned()),
            Some(name) => {
                let message = format!(
                    "{} is not a Secret name; the Secret must be in the Ingress's own namespace",
                    quoted(name)
                );
                findings.error(field, "InvalidName", message);
                Self::Unusable
            }
            None => Self::Unusable,
        }
    }
}

impl IngressRule {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        if !item.is_mapping(findings) {
            return None;
        }
        item.only(&["host", "http"], findings);
        let host = match item.get("host") {
            Some(field) => Some(decode_host(&field, findings)?.to_owned()),
            None => None,
        };
        let mut paths = Vec::new();
        if let Some(http) = item.get("http") {
            http.only(&["paths"], findings);
            if let Some(list) = http.get("paths") {
                paths = list.list(findings, IngressPath::decode);
            }
        }
        Some(Self { index: item.index(), host, paths })
    }
}

/// A host as written, if it is one: a name or `*.` and a name, without a port. Empty means every host.
fn decode_host<'a>(field: &Field<'a>, findings: &mut Findings) -> Option<&'a str> {
    let host = field.text(findings)?;
    let problem = match HostPattern::parse(host) {
        Ok(_) if !host.starts_with('[') && host.contains(':') => "a host here takes no port".to_owned(),
        Ok(_) => return Some(host),
        Err(error) => error.to_string(),
    };
    findings.error(field, "InvalidHost", format!("{}: {problem}", quoted(host)));
    None
}

impl IngressPath {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        if !item.is_mapping(findings) {
            return None;
        }
        item.only(&["path", "pathType", "backend"], findings);
        let kind = PathType::decode(item, findings)?;
        let path = match item.get("path") {
            Some(field) => {
                let path = field.text(findings)?;
                if let Err(problem) = check_path(path, kind) {
                    findings.error(&field, "InvalidPath", format!("{}: {problem}", quoted(path)));
                    return None;
                }
                path
            }
            None => "",
        };
        let Some(backend) = item.get("backend") else {
            findings.error(item, "MissingField", "the path has no backend");
            return None;
        };
        let backend = Backend::decode(&backend, findings)?;
        Some(Self { index: item.index(), path: path.to_owned(), kind, backend })
    }
}

impl PathType {
    fn decode(item: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        let Some(field) = item.get("pathType") else {
            let message = "pathType is missing: ImplementationSpecific is assumed";
            findings.warning(item, "MissingField", message);
            return Some(Self::ImplementationSpecific);
        };
        match field.text(findings)? {
            "Exact" => Some(Self::Exact),
            "Prefix" => Some(Self::Prefix),
            "ImplementationSpecific" => Some(Self::ImplementationSpecific),
            other => {
                let message = format!("{} is not Exact, Prefix or ImplementationSpecific", quoted(other));
                findings.error(&field, "InvalidPathType", message);
                None
            }
        }
    }
}

/// The rules of the Kubernetes API for paths, so that what is served from a file is served in a cluster too.
fn check_path(path: &str, kind: PathType) -> Result<(), &'static str> {
    const LONGEST: usize = 4096;
    if path.is_empty() {
        return Ok(());
    }
    if !path.starts_with('/') {
        return Err("a path starts with '/'");
    }
    if path.len() > LONGEST {
        return Err("the path is longer than 4096 bytes");
    }
    if path.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("the path has a control character");
    }
    if kind == PathType::ImplementationSpecific {
        return Ok(());
    }
    let lower = path.to_ascii_lowercase();
    if lower.contains("%2f") {
        return Err("the path has an encoded '/'");
    }
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." | ".." => return Err("the path has a '.' or '..' segment"),
            "" if segments.peek().is_some() => return Err("the path has an empty segment, '//'"),
            _ => {}
        }
    }
    Ok(())
}

impl Backend {
    fn decode(field: &Field<'_>, findings: &mut Findings) -> Option<Self> {
        field.only(&["service", "resource"], findings);
        let Some(service) = field.get("service") else {
            if field.get("resource").is_some() {
                return Some(Self::Resource);
            }
            findings.error(field, "MissingField", "the backend names no service");
            return None;
        };
        service.only(&["name", "port"], findings);
        let name = match service.get("name") {
            Some(field) => {
                let name = field.text(findings)?;
                if !is_subdomain(name) {
                    let message = format!("{} is not a Service name", quoted(name));
                    findings.error(&field, "InvalidName", message);
                    return None;
                }
                name.to_owned()
            }
            None => {
                findings.error(&service, "MissingField", "the backend service has no name");
                return None;
            }
        };
        let port = decode_backend_port(&service, findings)?;
        Some(Self::Service { name, port })
    }
}

fn decode_backend_port(service: &Field<'_>, findings: &mut Findings) -> Option<ServicePortRef> {
    let Some(port) = service.get("port") else {
        findings.error(service, "MissingField", "the backend service has no port");
        return None;
    };
    port.only(&["name", "number"], findings);
    if let Some(number) = port.get("number") {
        return number.port(findings).map(ServicePortRef::Number);
    }
    match port.get("name") {
        Some(name) => decode_port_ref(&name, findings),
        None => {
            findings.error(&port, "MissingField", "the port has neither number nor name");
            None
        }
    }
}

/// A port by number, or by name: 1 to 63 letters, digits and `-`.
pub(super) fn decode_port_ref(field: &Field<'_>, findings: &mut Findings) -> Option<ServicePortRef> {
    if field.is_number() {
        return field.port(findings).map(ServicePortRef::Number);
    }
    let name = field.text(findings)?;
    let valid = (1..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !valid {
        findings.error(field, "InvalidPort", format!("{} is not a port name", quoted(name)));
        return None;
    }
    Some(ServicePortRef::Name(name.to_owned()))
}
