use http::HeaderValue;

use super::{Annotation, AnnotationError, PolicyDraft};
use crate::names::canonical_host;
use crate::store::objects::{Backend, Ingress, ServicePortRef};

/// `upstream-vhost`.
pub struct UpstreamVhost;

/// The Host of backends, with gaps for which backend it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendHost(Box<[Piece]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Gap(Gap),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    Service,
    Namespace,
    Port,
}

/// By the names that they have in ingress-nginx.
const VARIABLES: [(&str, Gap); 3] =
    [("service_name", Gap::Service), ("namespace", Gap::Namespace), ("service_port", Gap::Port)];

impl BackendHost {
    fn parse(text: &str) -> Result<Self, AnnotationError> {
        let mut parts = text.split('$');
        let mut pieces: Vec<_> = parts.next().into_iter().map(|text| Piece::Text(text.into())).collect();
        for part in parts {
            let end = part.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            let (name, rest) = part.split_at(end.unwrap_or(part.len()));
            let known = VARIABLES.iter().find(|(known, _)| *known == name);
            let (_, gap) = known.ok_or(AnnotationError::Unsupported)?;
            pieces.extend([Piece::Gap(*gap), Piece::Text(rest.into())]);
        }
        let host = Self(pieces.into());
        host.fill("a", "b", Some(1)).map(|_| host).ok_or(AnnotationError::Value)
    }

    /// For a backend of an Ingress; `None` where the port it needs is not known, or what comes out is no host.
    pub fn of(&self, ingress: &Ingress, backend: &Backend) -> Option<HeaderValue> {
        let Backend::Service { name, port } = backend else { return None };
        let port = match port {
            ServicePortRef::Number(port) => Some(*port),
            ServicePortRef::Name(_) | ServicePortRef::First => None,
        };
        self.fill(name, &ingress.metadata.name.namespace, port)
    }

    fn fill(&self, service: &str, namespace: &str, port: Option<u16>) -> Option<HeaderValue> {
        let mut host = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => host.push_str(text),
                Piece::Gap(Gap::Service) => host.push_str(service),
                Piece::Gap(Gap::Namespace) => host.push_str(namespace),
                Piece::Gap(Gap::Port) => host.push_str(&port?.to_string()),
            }
        }
        canonical_host(&host).ok().and_then(|_| HeaderValue::from_str(&host).ok())
    }
}

impl Annotation for UpstreamVhost {
    fn name(&self) -> &'static str {
        "upstream-vhost"
    }

    fn doc(&self) -> &'static str {
        "The Host that backends get in place of the one that the client sent; backends with TLS are asked for this name too. `$service_name`, `$namespace` and `$service_port` (where the Ingress gives the port by its number) are filled in."
    }

    fn expects(&self) -> &'static str {
        "a host, with a port or without"
    }

    fn example(&self) -> &'static str {
        "$service_name.$namespace.svc.cluster.local"
    }

    fn default(&self) -> &'static str {
        "the Host of the client"
    }

    fn apply(&self, value: &str, draft: &mut PolicyDraft) -> Result<(), AnnotationError> {
        draft.rewriting.host = match value {
            "" => None,
            host => Some(BackendHost::parse(host)?),
        };
        Ok(())
    }
}
