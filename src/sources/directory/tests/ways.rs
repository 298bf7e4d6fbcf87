//! Folders that can be reached by several ways.

use super::*;

#[tokio::test]
async fn a_folder_is_read_by_another_link_when_one_goes() {
    let mut show = Show::start(|folder| {
        fs::create_dir(folder.join(".shared")).unwrap();
        fs::write(folder.join(".shared/a.yaml"), config_map("a", "1")).unwrap();
        symlink(".shared", folder.join("one")).unwrap();
        symlink(".shared", folder.join("two")).unwrap();
    })
    .await;
    assert_eq!(show.origin("a"), Some(show.path("one/a.yaml")));
    assert!(show.reasons().is_empty());
    fs::remove_file(show.path("one")).unwrap();
    show.until("the other link", |show| show.origin("a") == Some(show.path("two/a.yaml"))).await;
    rename_into(&show.path("two/a.yaml"), &config_map("a", "2"));
    show.until("a change behind it", |show| show.data("a") == Some("2")).await;
    // One that leads elsewhere by now is none that is left.
    symlink(".shared", show.path("three")).unwrap();
    fs::create_dir(show.path(".other")).unwrap();
    symlink(".other", show.path(".link")).unwrap();
    fs::rename(show.path(".link"), show.path("two")).unwrap();
    show.until("the third link", |show| show.origin("a") == Some(show.path("three/a.yaml"))).await;
    assert!(!show.log.iter().any(|line| line.starts_with("delete")), "{:?}", show.log);
}

/// A gateway that is started anew must not find other Secrets than the one before it: a pair is named like its folder.
#[tokio::test]
async fn the_way_without_links_counts_whichever_is_there_first() {
    let prepare = |folder: &Path| {
        write_pair(&folder.join("shop"), &pem(1));
        fs::create_dir(folder.join("a")).unwrap();
    };
    let secrets = |show: &Show| {
        let secret = |name| show.store.secret(&ObjectName::new("pem", name)).is_some();
        (secret("shop"), secret("link"))
    };
    let started = Show::start(|folder| {
        prepare(folder);
        symlink("../shop", folder.join("a/link")).unwrap();
    })
    .await;
    assert_eq!(secrets(&started), (true, false));

    let mut show = Show::start(prepare).await;
    symlink("../shop", show.path("a/link")).unwrap();
    show.settle("settled").await;
    assert_eq!(secrets(&show), (true, false));
    // Moved away it is behind no link any more, and comes back before one.
    fs::rename(show.path("shop"), show.path(".away")).unwrap();
    fs::remove_file(show.path("a/link")).unwrap();
    symlink("../.away", show.path("a/link")).unwrap();
    show.until("the link", |show| secrets(show) == (false, true)).await;
    fs::rename(show.path(".away"), show.path("shop")).unwrap();
    fs::remove_file(show.path("a/link")).unwrap();
    symlink("../shop", show.path("a/link")).unwrap();
    show.until("the folder", |show| secrets(show) == (true, false)).await;
    assert!(show.reasons().is_empty());
}

#[tokio::test]
async fn of_several_links_the_first_in_order_counts() {
    let mut show = Show::start(|folder| {
        fs::create_dir(folder.join(".shared")).unwrap();
        fs::write(folder.join(".shared/a.yaml"), config_map("a", "1")).unwrap();
        symlink(".shared", folder.join("two")).unwrap();
    })
    .await;
    assert_eq!(show.origin("a"), Some(show.path("two/a.yaml")));
    symlink(".shared", show.path("one")).unwrap();
    show.until("the first link", |show| show.origin("a") == Some(show.path("one/a.yaml"))).await;
    rename_into(&show.path("one/a.yaml"), &config_map("a", "2"));
    show.until("a change behind it", |show| show.data("a") == Some("2")).await;
    fs::remove_file(show.path("one/a.yaml")).unwrap();
    show.until("it to go", |show| show.data("a").is_none()).await;
    assert!(show.reasons().is_empty(), "{:?}", show.findings);
}

#[test]
fn a_root_that_a_link_in_another_leads_to_is_read_once_and_as_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    fs::create_dir(at("one")).unwrap();
    fs::create_dir(at("two")).unwrap();
    fs::write(at("two/a.yaml"), config_map("a", "1")).unwrap();
    symlink("../two", at("one/link")).unwrap();
    let batch = Directory { roots: vec![at("one"), at("two")], pem_namespace: "pem".into() }.read();
    assert!(batch.findings.is_empty());
    let files: Vec<_> = batch.origins.iter().map(|(_, file)| file.as_deref().cloned()).collect();
    assert_eq!(files, [Some(at("two/a.yaml"))]);
}
