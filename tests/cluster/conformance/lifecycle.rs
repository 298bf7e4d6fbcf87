//! Rows L6, L8 and L14: the end of a gateway, and the API server's absence.

use std::thread;

use super::super::backend::Backend;
use super::super::control_plane::ControlPlane;
use super::super::gateway::Gateway;
use super::super::secrets::ingress;
use super::{Site, eventually};

/// Row L8 as well: a request that takes long is let finish.
#[test]
fn l06_health_is_refused_while_the_gateway_drains_and_l08_slow_requests_finish() {
    let Some(mut site) = Site::start("l06", &[], &[]) else { return };
    site.plain("web", "l06.example.com", "");
    site.gateway.expect_http("l06.example.com", 200);
    assert_eq!(site.gateway.admin("/healthz").unwrap().status, 200);
    thread::scope(|scope| {
        let slow = scope.spawn(|| site.gateway.http_path("l06.example.com", "/slow"));
        eventually("the request does not arrive", || match site.backend.waiting() {
            0 => Err("nothing".into()),
            _ => Ok(()),
        });
        site.gateway.terminate();
        for path in ["/healthz", "/readyz"] {
            eventually("the gateway does not say that it drains", || match site.gateway.admin(path)? {
                answer if answer.status >= 500 && answer.body.contains("drain") => Ok(()),
                answer => Err(format!("{answer:?}")),
            });
        }
        assert!(!slow.is_finished());
        site.backend.release();
        let answer = slow.join().unwrap().unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "l06"));
    });
    site.gateway.wait();
}

#[test]
fn l14_status_is_written_again_after_the_api_server_was_away() {
    let Some(mut plane) = ControlPlane::start() else { return };
    plane.namespace("l14");
    plane.apply(&Backend::start("l14").manifest("l14", "web"));
    plane.apply(&ingress("l14", "web", "l14.example.com", "tls"));
    let _gateway = Gateway::start(&plane.kubeconfig(), &["--publish-status-address=203.0.113.7"]);
    let expect_status = |plane: &ControlPlane| {
        eventually("no status", || {
            let path = "jsonpath={.status.loadBalancer.ingress[*].ip}";
            match plane.kubectl(&["-n", "l14", "get", "ingress", "web", "-o", path]).trim() {
                "203.0.113.7" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    };
    expect_status(&plane);
    plane.kill_api_server();
    plane.start_api_server();
    let none = r#"{"status":{"loadBalancer":{"ingress":[]}}}"#;
    plane.patch_status("l14", "ingress", "web", none);
    expect_status(&plane);
}
