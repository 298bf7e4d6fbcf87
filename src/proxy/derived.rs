//! Settings in the form the request path wants them: field values made, limits in the types of their readers.
//!
//! A worker makes them anew when the settings of its snapshot are others, so no request computes any of it.

use std::sync::Arc;

use http::HeaderValue;

use super::http1::HeadLimits;
use super::http2;
use super::service::Limits;
use super::upstream::Retries;
use super::upstream::pool::PoolLimits;
use crate::settings::Settings;
use crate::settings::choices::{LogFormat, LogLevel};
use crate::snapshot::access::Networks;

/// What requests go by.
pub struct Derived {
    pub settings: Arc<Settings>,
    pub hsts: Option<HeaderValue>,
    /// Clients that get nothing.
    pub blocked: Networks,
    pub limits: Limits,
    pub retries: Retries,
    /// Which connections to backends are kept for later requests.
    pub idle_backends: PoolLimits,
    /// How requests are logged, where they are.
    pub access_log: Option<LogFormat>,
}

impl Derived {
    pub fn new(settings: &Arc<Settings>) -> Self {
        let limits = Limits {
            head: HeadLimits {
                bytes: settings.client_max_header_bytes,
                fields: settings.client_max_header_count,
            },
            header_timeout: settings.client_header_timeout,
            keep_alive: settings.keep_alive,
            body_timeout: settings.client_body_timeout,
        };
        // The access log is a matter of level info: who asks for warnings only gets warnings only.
        let logged = settings.access_log && settings.log_level >= LogLevel::Info;
        Self {
            hsts: hsts(settings),
            blocked: Networks::new(&settings.block_cidrs),
            limits,
            retries: Retries {
                tries: settings.proxy_next_upstream_tries,
                non_idempotent: settings.retry_non_idempotent,
            },
            idle_backends: PoolLimits {
                idle_timeout: settings.upstream_keepalive_timeout,
                max_idle: settings.upstream_keepalive_connections,
            },
            access_log: logged.then_some(settings.log_format),
            settings: settings.clone(),
        }
    }

    /// Limits of connections that speak HTTP/2.
    pub fn http2(&self) -> http2::Limits {
        http2::Limits {
            streams: self.settings.http2_max_concurrent_streams,
            header_bytes: u32::try_from(self.settings.client_max_header_bytes).unwrap_or(u32::MAX),
        }
    }
}

/// RFC 6797, section 6.1.
fn hsts(settings: &Settings) -> Option<HeaderValue> {
    if !settings.hsts {
        return None;
    }
    let mut value = format!("max-age={}", settings.hsts_max_age);
    if settings.hsts_include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if settings.hsts_preload {
        value.push_str("; preload");
    }
    HeaderValue::from_str(&value).ok()
}
