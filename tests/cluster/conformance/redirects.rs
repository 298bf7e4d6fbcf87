//! Rows E15, R1 and R3: when plain HTTP is sent to HTTPS.

use super::{Site, eventually, plain};

fn expect_redirect(site: &Site, host: &str, path: &str, location: &str) {
    eventually("no redirect", || match site.gateway.http_path(host, path)? {
        answer if answer.status == 308 && answer.location.as_deref() == Some(location) => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

#[test]
fn e15_http_is_redirected_also_while_the_secret_is_missing() {
    let Some(site) = Site::start("e15", &[], &[]) else { return };
    site.secured("web", "e15.example.com", "nowhere");
    expect_redirect(&site, "e15.example.com", "/", "https://e15.example.com");
}

#[test]
fn r01_an_annotation_redirects_a_host_without_tls() {
    let Some(site) = Site::start("r01", &[], &[]) else { return };
    site.plain("web", "r01.example.com", "");
    site.gateway.expect_http("r01.example.com", 200);
    site.plain("web", "r01.example.com", "nginx.ingress.kubernetes.io/force-ssl-redirect: 'true'");
    expect_redirect(&site, "r01.example.com", "/", "https://r01.example.com");
    expect_redirect(&site, "r01.example.com", "/a?b=c", "https://r01.example.com/a?b=c");
}

#[test]
fn r03_paths_are_exempt_from_redirects_as_the_config_map_says() {
    let Some(site) = Site::start("r03", &[], &[]) else { return };
    site.secured("web", "r03.example.com", "nowhere");
    // The path of a rule is what is exempt, as a location of nginx is.
    let rule =
        plain("r03", "exempt", "r03.example.com", "web", "").replace("path: /,", "path: /check-no-tls,");
    site.plane.apply(&rule);
    expect_redirect(&site, "r03.example.com", "/check-no-tls", "https://r03.example.com/check-no-tls");
    let worker = site.gateway.worker();
    site.set(&[("no-tls-redirect-locations", "/check-no-tls")]);
    eventually("the path is still redirected", || {
        match site.gateway.http_path("r03.example.com", "/check-no-tls")?.status {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    });
    expect_redirect(&site, "r03.example.com", "/other", "https://r03.example.com/other");
    assert_eq!(site.gateway.worker(), worker);
}
