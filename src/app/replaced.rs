//! The line in the log for each certificate that takes the place of another, whatever the number of hosts it serves.

use std::collections::BTreeMap;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::names::HostPattern;
use crate::snapshot::certificates::{Certificate, CertificateMap, HostCertificates};
use crate::store::objects::ObjectName;
use crate::telemetry::logging::{IN_BULK, MOST_IN_BULK};

/// A certificate that is new for hosts that had another one.
#[derive(Debug)]
struct Replaced<'a> {
    certificate: &'a Certificate,
    /// The first of the hosts.
    host: &'a HostPattern,
    hosts: usize,
}

/// Logs what of `after` is new for `hosts`, whose certificates are others than `before`; `Any` stands for the default
/// certificate.
pub(super) fn log(before: &CertificateMap, after: &CertificateMap, hosts: &[HostPattern]) {
    if !tracing::enabled!(target: IN_BULK, tracing::Level::INFO) {
        return;
    }
    let replaced = replaced(before, after, hosts);
    for Replaced { certificate, host, hosts } in replaced.values().take(MOST_IN_BULK) {
        let secret = certificate.secret.as_ref().map(tracing::field::display);
        let end = OffsetDateTime::from_unix_timestamp(certificate.pair.not_after).ok();
        let not_after = end.and_then(|end| end.format(&Rfc3339).ok());
        let serial = &*certificate.pair.serial;
        tracing::info!(target: IN_BULK, secret, %host, hosts, serial, not_after, "certificate replaced");
    }
    if let Some(more) = replaced.len().checked_sub(MOST_IN_BULK).filter(|more| *more > 0) {
        tracing::info!(more, "more certificates were replaced, see /api/v1/certificates");
    }
}

fn replaced<'a>(
    before: &'a CertificateMap,
    after: &'a CertificateMap,
    hosts: &'a [HostPattern],
) -> BTreeMap<(&'a Option<ObjectName>, [u8; 32]), Replaced<'a>> {
    let mut replaced = BTreeMap::new();
    for host in hosts {
        let (Some(old), Some(new)) = (certificates(before, host), certificates(after, host)) else {
            continue;
        };
        let had = |digest| old.iter().any(|binding| binding.certificate.pair.digest == digest);
        for binding in new.iter().filter(|binding| !had(binding.certificate.pair.digest)) {
            let certificate = &*binding.certificate;
            let key = (&certificate.secret, certificate.pair.digest);
            replaced.entry(key).or_insert(Replaced { certificate, host, hosts: 0 }).hosts += 1;
        }
    }
    replaced
}

fn certificates<'a>(map: &'a CertificateMap, host: &HostPattern) -> Option<&'a HostCertificates> {
    match host {
        HostPattern::Any => Some(&map.default),
        host => map.get(host).map(|certificates| &**certificates),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::snapshot::certificates::Binding;
    use crate::testing::certificates::Authority;

    fn served(serial: u64, secret: &str) -> Arc<HostCertificates> {
        let pair = Authority::new("test").leaf(&["a.test"]).serial(serial).issue().parse();
        let secret = Some(ObjectName::new("default", secret));
        let certificate = Arc::new(Certificate { pair: Arc::new(pair), secret, handshakes: Arc::default() });
        Arc::new(HostCertificates::new(Binding { certificate, ingress: None, missing_since: None }, []))
    }

    #[test]
    fn one_line_for_a_certificate_of_several_hosts_and_none_for_a_new_host() {
        let host = |name: &str| HostPattern::parse(name).unwrap();
        let (old, new, first) = (served(1, "web"), served(2, "web"), served(3, "first"));
        let mut before = CertificateMap {
            exact: Default::default(),
            wildcard: Default::default(),
            default: old.clone(),
            staples: Default::default(),
        };
        before.set(&host("a.test"), Some(old.clone()));
        before.set(&host("b.test"), Some(old.clone()));
        before.set(&host("same.test"), Some(old));
        let mut after = before.clone();
        after.set(&host("a.test"), Some(new.clone()));
        after.set(&host("b.test"), Some(new));
        after.set(&host("c.test"), Some(first));
        let hosts = ["a.test", "b.test", "c.test", "same.test", ""].map(host);
        let replaced: Vec<_> = replaced(&before, &after, &hosts).into_values().collect();
        assert_eq!(replaced.len(), 1, "{replaced:?}");
        assert_eq!((&*replaced[0].certificate.pair.serial, replaced[0].hosts), ("02", 2));
        assert_eq!(*replaced[0].host, host("a.test"));
    }
}
