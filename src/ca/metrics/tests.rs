use super::*;
use crate::ca::csr::CsrError;
use crate::ca::fixtures::{HOUR, NOW, hours};
use crate::ca::roots::{RootOptions, load_or_create, rotate};
use crate::ca::store::memory::Memory;

fn text(metrics: &Metrics) -> String {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test]
async fn ca_21_expiry_follows_the_authority_in_use() {
    let store = Memory::default();
    let options = RootOptions { life: HOUR, ..RootOptions::default() };
    let root = load_or_create(&store, &options, NOW).await.unwrap();
    let metrics = Metrics::default();
    metrics.set_expiry(&root.authority, NOW);
    assert!(text(&metrics).contains("citadel_server_root_cert_expiry_seconds 3600\n"));
    metrics.set_expiry(&root.authority, NOW + hours(2));
    assert!(
        text(&metrics).contains("citadel_server_root_cert_expiry_seconds -3600\n"),
        "ended counts below zero"
    );
    let root = rotate(&store, &options, NOW + time::Duration::minutes(30)).await.unwrap();
    metrics.set_expiry(&root.authority, NOW + time::Duration::minutes(30));
    let text = text(&metrics);
    assert!(text.contains("citadel_server_root_cert_expiry_seconds 3600\n"), "{text}");
    let end = (NOW + time::Duration::minutes(90)).unix_timestamp();
    assert!(text.contains(&format!("citadel_server_root_cert_expiry_timestamp {end}\n")), "{text}");
    assert!(text.contains(&format!("citadel_server_cert_chain_expiry_timestamp {end}\n")), "{text}");
}

#[test]
fn names_are_those_of_the_dashboards() {
    let metrics = Metrics::default();
    metrics.count_sign_error(&IssueError::Csr(CsrError::WeakKey));
    let text = text(&metrics);
    for line in [
        "citadel_server_csr_count 0",
        "citadel_server_authentication_failure_count 0",
        "citadel_server_csr_parsing_err_count 1",
        "citadel_server_id_extraction_err_count 0",
        "citadel_server_success_cert_issuance_count 0",
        "citadel_server_csr_sign_err_count{error=\"CSR_ERROR\"} 1",
        "citadel_secret_controller_secret_created_count 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
