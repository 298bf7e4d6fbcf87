//! The settings of OCSP stapling, all of them dynamic.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;

use crate::names::responder::Target;
use crate::settings::Settings;

/// How responders are asked. The names in brackets are the keys of the settings file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OcspSettings {
    /// Whether certificates are stapled at all (`enable-ocsp`).
    pub enabled: bool,
    /// Time for one attempt, from name resolution to the last byte (`ocsp-timeout`).
    pub timeout: Duration,
    /// Attempts under way at the same time (`ocsp-concurrency`).
    pub concurrency: usize,
    /// Networks that are not public and may be connected to nevertheless (`ocsp-allowed-cidrs`).
    pub allowed_cidrs: Vec<IpNet>,
    /// Other URLs to ask, by the URL in the certificate (`ocsp-responder-overrides`). Whoever writes settings
    /// may connect anywhere, so their addresses are not checked.
    pub overrides: BTreeMap<String, Target>,
    /// The HTTP proxy to go through (`ocsp-proxy`), an http URL of which host and port matter.
    pub proxy: Option<Target>,
}

impl OcspSettings {
    /// Out of the gateway's settings.
    pub fn of(settings: &Settings) -> Self {
        Self {
            enabled: settings.enable_ocsp,
            timeout: settings.ocsp_timeout,
            concurrency: settings.ocsp_concurrency,
            allowed_cidrs: settings.ocsp_allowed_cidrs.clone(),
            overrides: settings.ocsp_responder_overrides.clone(),
            proxy: settings.ocsp_proxy.clone(),
        }
    }

    /// Attempts at the same time to one responder: a slow one must not hold all places.
    pub const PER_RESPONDER: usize = 2;

    /// Attempts at the same time for the certificates of one namespace: half of all, so that a tenant with many
    /// responders leaves the other half to everyone else.
    pub fn per_namespace(&self) -> usize {
        self.concurrency.div_ceil(2)
    }
}

impl Default for OcspSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout: Duration::from_secs(5),
            concurrency: 8,
            allowed_cidrs: Vec::new(),
            overrides: BTreeMap::new(),
            proxy: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_taken_over() {
        assert_eq!(OcspSettings::of(&Settings::default()), OcspSettings::default());
        let target = |url: &str| Target::parse(url).unwrap();
        let settings = Settings {
            enable_ocsp: false,
            ocsp_concurrency: 3,
            ocsp_proxy: Some(target("http://proxy:3128")),
            ocsp_responder_overrides: [("http://a/".into(), target("http://10.0.0.1:8080/"))].into(),
            ..Settings::default()
        };
        let OcspSettings { enabled, concurrency, overrides, proxy, .. } = OcspSettings::of(&settings);
        assert_eq!((enabled, concurrency), (false, 3));
        assert_eq!(proxy.unwrap().authority(), "proxy:3128");
        assert_eq!(overrides["http://a/"].authority(), "10.0.0.1:8080");
    }
}
