//! Roots that are replaced, are gone, or are yet to come. All of it is seen long before everything is looked at again.

use super::*;

fn release(folder: &Path, value: &str) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("a.yaml"), config_map("a", value)).unwrap();
}

/// `link` leads to `target` from now on.
fn lead(link: &Path, target: &str) {
    let next = link.with_extension("next");
    symlink(target, &next).unwrap();
    fs::rename(next, link).unwrap();
}

impl Show {
    async fn until_data(&mut self, value: &str) {
        self.until(value, |show| show.data("a") == Some(value)).await;
    }

    /// Waits until all is well, and then for a change in the file `a.yaml` of `folder`.
    async fn until_followed(&mut self, folder: &str) {
        let well = |show: &Self| show.reasons().is_empty() && show.health == Health::Well;
        self.until("all to be well", well).await;
        rename_into(&self.path(folder).join("a.yaml"), &config_map("a", "followed"));
        self.until_data("followed").await;
    }
}

#[tokio::test]
async fn a_root_that_is_moved_away_keeps_what_it_defined_until_there_is_another() {
    let mut show = Show::start_at("manifests", |folder| {
        release(&folder.join("manifests/deep"), "1");
        fs::write(folder.join("manifests/b.yaml"), config_map("b", "1")).unwrap();
        release(&folder.join("new/deep"), "2");
    })
    .await;
    let root = show.path("manifests");
    fs::rename(&root, show.path("old")).unwrap();
    show.until("the finding", |show| show.reasons() == ["Unreadable"]).await;
    assert_eq!(show.findings[&root].len(), 1);
    assert!(matches!(&show.health, Health::Ill(why) if why.starts_with(root.to_str().unwrap())));
    // Far longer than a file that is gone is waited for: one that was believed to be would be told of.
    tokio::time::sleep(Duration::from_millis(300)).await;
    fs::rename(show.path("new"), &root).unwrap();
    show.until_data("2").await;
    assert!(!show.log.iter().any(|line| line.starts_with("delete ConfigMap default/a")), "{:?}", show.log);
    show.until("what is not in the new one to go", |show| show.data("b").is_none()).await;
    show.until_followed("manifests/deep").await;
}

#[tokio::test]
async fn a_root_that_is_deleted_and_made_again_is_followed() {
    let mut show = Show::start_at("manifests", |folder| release(&folder.join("manifests/deep"), "1")).await;
    for value in ["2", "3"] {
        fs::remove_dir_all(show.path("manifests")).unwrap();
        release(&show.path("manifests/deep"), value);
        show.until_data(value).await;
    }
    show.until_followed("manifests/deep").await;
}

#[tokio::test]
async fn a_root_that_is_swapped_without_a_gap_is_followed() {
    let mut show = Show::start_at("manifests", |folder| {
        release(&folder.join("manifests/deep"), "1");
        release(&folder.join("new/deep"), "2");
    })
    .await;
    fs::rename(show.path("manifests"), show.path("old")).unwrap();
    fs::rename(show.path("new"), show.path("manifests")).unwrap();
    show.until_data("2").await;
    show.until_followed("manifests/deep").await;
}

#[tokio::test]
async fn a_root_that_is_a_link_is_followed_when_it_is_set_anew() {
    let mut show = Show::start_at("current", |folder| {
        release(&folder.join("releases/1"), "1");
        release(&folder.join("releases/2"), "2");
        symlink("releases/1", folder.join("current")).unwrap();
    })
    .await;
    lead(&show.path("current"), "releases/2");
    show.until_data("2").await;
    show.until_followed("releases/2").await;
}

#[tokio::test]
async fn a_link_on_the_way_to_a_root_is_followed_when_it_is_set_anew() {
    let mut show = Show::start_at("current/manifests", |folder| {
        release(&folder.join("releases/1/manifests"), "1");
        release(&folder.join("releases/2/manifests"), "2");
        symlink("releases/1", folder.join("current")).unwrap();
    })
    .await;
    lead(&show.path("current"), "releases/2");
    show.until_data("2").await;
    show.until_followed("releases/2/manifests").await;
}

#[tokio::test]
async fn a_root_that_is_one_file_is_followed() {
    let mut show = Show::start_at("a.yaml", |folder| release(folder, "1")).await;
    rename_into(&show.path("a.yaml"), &config_map("a", "2"));
    show.until_data("2").await;
    fs::remove_file(show.path("a.yaml")).unwrap();
    show.until("the finding", |show| show.reasons() == ["Unreadable"]).await;
    assert_eq!(show.data("a"), Some("2"));
    fs::write(show.path("a.yaml"), config_map("a", "3")).unwrap();
    show.until_data("3").await;
    show.until_followed("").await;
}

#[tokio::test]
async fn the_key_beside_a_root_that_is_a_certificate_is_followed() {
    let mut show = Show::start_at("shop/tls.crt", |folder| write_pair(&folder.join("shop"), &pem(1))).await;
    let new = pem(2);
    rename_into(&show.path("shop/tls.crt"), &new.certificate);
    rename_into(&show.path("shop/tls.key"), &new.key);
    show.until_serial("shop", "02").await;
}

#[tokio::test]
async fn a_root_that_comes_later_is_followed() {
    let mut show = Show::start_at("not/yet", |_| {}).await;
    assert_eq!(show.reasons(), ["Unreadable"]);
    assert!(matches!(show.health, Health::Ill(_)));
    release(&show.path("not/yet"), "1");
    show.until_data("1").await;
    show.until_followed("not/yet").await;
}

#[tokio::test]
async fn a_root_becomes_a_file_and_a_folder_again() {
    let mut show = Show::start_at("a.yaml", |folder| release(&folder.join("a.yaml"), "1")).await;
    fs::remove_dir_all(show.path("a.yaml")).unwrap();
    rename_into(&show.path("a.yaml"), &config_map("a", "2"));
    show.until_data("2").await;
    fs::remove_file(show.path("a.yaml")).unwrap();
    release(&show.path("a.yaml"), "3");
    show.until_data("3").await;
    show.until_followed("a.yaml").await;
}
