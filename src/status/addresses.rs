//! The addresses under which clients reach the gateway: those of the setting `publish-status-address`, else
//! those of the Service in `publish-service`, else those of the nodes that its pods run on.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use kube::{Client, Error};
use tokio::time::Instant;

use super::replicas::Replicas;
use crate::settings::Settings;
use crate::sources::Address;
use crate::store::objects::ObjectName;

/// How often the Service or the nodes are looked at. Their addresses change when a load balancer is made or a pod
/// moves, and hardly ever after.
const REREAD: Duration = Duration::from_secs(10);

/// Finds out what to publish.
pub(super) struct Addresses {
    replicas: Replicas,
    read: Option<Read>,
}

/// What was read last.
struct Read {
    of: Origin,
    at: Instant,
    addresses: Vec<Address>,
}

/// Where addresses are read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Service(ObjectName),
    Nodes { internal: bool },
}

impl Addresses {
    pub fn new(replicas: Replicas) -> Self {
        Self { replicas, read: None }
    }

    /// In order, each once; empty where nothing is to be published, or is not known at the moment.
    pub async fn current(&mut self, client: &Client, settings: &Settings) -> Vec<Address> {
        if let Some(addresses) = &settings.publish_status_address {
            return parse_list(addresses);
        }
        let of = match &settings.publish_service {
            Some(name) => Origin::Service(name.clone()),
            None => Origin::Nodes { internal: settings.report_node_internal_ip_address },
        };
        // What was read before stays true until the contrary is known.
        let before = self.read.take().filter(|read| read.of == of);
        if let Some(read) = before.as_ref().filter(|read| read.at.elapsed() < REREAD) {
            let addresses = read.addresses.clone();
            self.read = before;
            return addresses;
        }
        let addresses = match self.read(client, &of).await {
            Ok(addresses) => addresses,
            Err(error) => {
                tracing::warn!(from = ?of, %error, "the addresses to publish cannot be read");
                before.map(|read| read.addresses).unwrap_or_default()
            }
        };
        self.read = Some(Read { of, at: Instant::now(), addresses: addresses.clone() });
        addresses
    }

    async fn read(&self, client: &Client, of: &Origin) -> Result<Vec<Address>, Error> {
        match of {
            Origin::Service(name) => {
                let services: Api<Service> = Api::namespaced(client.clone(), &name.namespace);
                Ok(addresses_of(&services.get(&name.name).await?))
            }
            Origin::Nodes { internal } => {
                let found = self.replicas.node_addresses(client, *internal).await?;
                Ok(in_order(found.iter().map(|address| parse(address)).collect()))
            }
        }
    }
}

/// Addresses and names between commas, as in the setting.
fn parse_list(text: &str) -> Vec<Address> {
    in_order(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse).collect())
}

fn parse(text: &str) -> Address {
    match text.parse::<IpAddr>() {
        Ok(address) => Address::Ip(address.to_string()),
        Err(_) => Address::Hostname(text.to_owned()),
    }
}

fn in_order(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.sort();
    addresses.dedup();
    addresses
}

/// What leads to a Service from outside, or from inside where that is all it has.
fn addresses_of(service: &Service) -> Vec<Address> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return spec.external_name.iter().map(|name| Address::Hostname(name.clone())).collect();
    }
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default();
    let mut addresses: Vec<_> = ingress
        .iter()
        .filter_map(|point| {
            let ip = point.ip.as_deref().filter(|ip| !ip.is_empty()).map(parse);
            ip.or_else(|| point.hostname.clone().map(Address::Hostname))
        })
        .collect();
    addresses.extend(spec.external_ips.iter().flatten().map(|ip| parse(ip)));
    // A load balancer that is still being made has no address yet; its cluster address would mislead.
    if addresses.is_empty() && kind != "LoadBalancer" {
        let cluster = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None");
        addresses.extend(cluster.map(parse));
    }
    in_order(addresses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(service: serde_json::Value) -> Vec<String> {
        let service: Service = serde_json::from_value(service).unwrap();
        addresses_of(&service).iter().map(|address| address.as_str().to_owned()).collect()
    }

    #[test]
    fn the_setting_is_a_list_in_order_and_without_repetition() {
        let list = parse_list("lb.example.com, 203.0.113.9,203.0.113.7,,203.0.113.9,2001:DB8::1");
        let ip = |text: &str| Address::Ip(text.into());
        let expected = [
            ip("2001:db8::1"),
            ip("203.0.113.7"),
            ip("203.0.113.9"),
            Address::Hostname("lb.example.com".into()),
        ];
        assert_eq!(list, expected);
    }

    #[test]
    fn a_load_balancer_publishes_what_it_was_given_and_nothing_before() {
        let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.9"});
        assert!(of(json!({"spec": spec})).is_empty());
        let ingress = json!([{"hostname": "b.example.com"}, {"ip": "203.0.113.7"}, {"ip": "203.0.113.1"}]);
        let service = json!({"spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
        assert_eq!(of(service), ["203.0.113.1", "203.0.113.7", "b.example.com"]);
    }

    #[test]
    fn other_types_publish_the_nearest_thing_they_have() {
        let external = json!({"type": "NodePort", "clusterIP": "10.96.0.9", "externalIPs": ["198.51.100.4"]});
        assert_eq!(of(json!({"spec": external})), ["198.51.100.4"]);
        assert_eq!(of(json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.9"}})), ["10.96.0.9"]);
        assert_eq!(
            of(json!({"spec": {"externalName": "a.example.com", "type": "ExternalName"}})),
            ["a.example.com"]
        );
        assert!(of(json!({"spec": {"clusterIP": "None"}})).is_empty());
        assert!(of(json!({})).is_empty());
    }
}
