//! Rows E15 and R1 to R8: when requests are sent to HTTPS, or somewhere else.

use super::{Site, eventually, plain, secrets};

fn expect_redirect(site: &Site, host: &str, path: &str, location: &str) {
    expect_status(site, 308, host, path, location);
}

fn expect_status(site: &Site, status: u16, host: &str, path: &str, location: &str) {
    eventually("no redirect", || match site.gateway.http_path(host, path)? {
        answer if answer.status == status && answer.location.as_deref() == Some(location) => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
}

/// An annotation of ingress-nginx as YAML.
fn nginx(name: &str, value: &str) -> String {
    format!("nginx.ingress.kubernetes.io/{name}: '{value}'")
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

#[test]
fn r02_the_final_slash_of_the_root_stays_where_that_is_asked_for() {
    let Some(site) = Site::start("r02", &[], &[]) else { return };
    let annotations = [nginx("force-ssl-redirect", "true"), nginx("preserve-trailing-slash", "true")];
    site.plain("web", "r02.example.com", &annotations.join(", "));
    expect_redirect(&site, "r02.example.com", "/", "https://r02.example.com/");
    expect_redirect(&site, "r02.example.com", "/a/", "https://r02.example.com/a/");
}

#[test]
fn r04_www_is_sent_to_the_host_without_it_over_http() {
    let Some(site) = Site::start("r04", &[], &[]) else { return };
    site.plain("web", "r04.example.com", &nginx("from-to-www-redirect", "true"));
    // There the answer names port 80, which `http` means anyway.
    expect_redirect(&site, "www.r04.example.com", "/foo", "http://r04.example.com/foo");
    site.gateway.expect_http("r04.example.com", 200);
    // The annotation goes, and the other host with it.
    site.plain("web", "r04.example.com", &nginx("from-to-www-redirect", "false"));
    site.gateway.expect_http("www.r04.example.com", 404);
}

#[test]
fn r05_www_is_sent_to_the_host_without_it_over_https() {
    let Some(site) = Site::start("r05", &[], &[]) else { return };
    let pair = site.authority.issue_for(&["r05.example.com", "www.r05.example.com"]);
    secrets::create_secret(site.plane, "r05", "tls", &pair);
    site.secured("web", "r05.example.com", "tls");
    site.kubectl(&["annotate", "ingress", "web", "nginx.ingress.kubernetes.io/from-to-www-redirect=true"]);
    eventually("no redirect", || {
        let answer = site.gateway.https(&site.authority, "www.r05.example.com")?;
        match (answer.status, answer.location.as_deref()) {
            (308, Some("https://r05.example.com/"))
                if answer.certificate.as_ref() == Some(&pair.certificate) =>
            {
                Ok(())
            }
            _ => Err(format!("{answer:?}")),
        }
    });
    site.expect_https("r05.example.com", &pair.certificate);
}

#[test]
fn r06_an_ingress_sends_everything_to_a_url_without_asking_its_backend() {
    let Some(site) = Site::start("r06", &[], &[]) else { return };
    let to = nginx("permanent-redirect", "https://elsewhere.example.com");
    site.plain("web", "r06.example.com", &to);
    expect_status(&site, 301, "r06.example.com", "/a", "https://elsewhere.example.com");
    site.plain("web", "r06.example.com", &[to, nginx("permanent-redirect-code", "308")].join(", "));
    expect_status(&site, 308, "r06.example.com", "/a", "https://elsewhere.example.com");
    // A Service that is not there is not missed.
    site.plane.apply(&plain(
        "r06",
        "web",
        "r06.example.com",
        "nowhere",
        &nginx("temporal-redirect", "/closed"),
    ));
    expect_status(&site, 302, "r06.example.com", "/a", "http://r06.example.com/closed");
}

#[test]
fn r07_redirects_to_a_path_are_absolute_unless_they_shall_not_be() {
    let Some(site) = Site::start("r07", &[], &[]) else { return };
    let to = nginx("permanent-redirect", "/new-location");
    site.plain("web", "r07.example.com", &to);
    expect_status(&site, 301, "r07.example.com", "/", "http://r07.example.com/new-location");
    site.plain("web", "r07.example.com", &[to, nginx("relative-redirects", "true")].join(", "));
    expect_status(&site, 301, "r07.example.com", "/", "/new-location");
}

#[test]
fn r08_the_root_of_a_host_is_sent_to_its_application() {
    let Some(site) = Site::start("r08", &[], &[]) else { return };
    site.plain("web", "r08.example.com", &nginx("app-root", "/foo"));
    expect_status(&site, 302, "r08.example.com", "/", "http://r08.example.com/foo");
    eventually("the application itself", || {
        match site.gateway.http_path("r08.example.com", "/foo")?.status {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    });
}
