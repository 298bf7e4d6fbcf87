use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::settings::schema::FIELDS;
use crate::store::objects::{Metadata, ObjectName};

/// Far longer than any reload takes; reached only where one never comes.
const GIVE_UP: Duration = Duration::from_secs(20);

fn reloader(file: &Path) -> Reloader {
    let inputs = Inputs { file: Some(file.to_owned()), ..Inputs::default() };
    let started = inputs.load().unwrap();
    Reloader::new(inputs, started)
}

fn file_with(content: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    fs::write(&file, content).unwrap();
    (folder, file)
}

fn applied(reload: Option<Reload>) -> Applied {
    match reload {
        Some(Reload::Applied(applied)) => applied,
        other => panic!("expected an applied edit, got {other:?}"),
    }
}

fn keys(changes: &[Change]) -> Vec<&'static str> {
    changes.iter().map(|change| change.key).collect()
}

#[test]
fn an_unchanged_file_is_no_news() {
    let (_folder, file) = file_with("http-port: 80");
    let mut reloader = reloader(&file);
    assert!(reloader.reload().is_none());
    fs::write(&file, "# the same\nhttp-port: \"80\"").unwrap();
    assert!(reloader.reload().is_none());
}

#[test]
fn dynamic_changes_apply_while_restart_requiring_ones_wait() {
    let (_folder, file) = file_with("");
    let mut reloader = reloader(&file);
    fs::write(&file, "http-port: 80\nhsts: false").unwrap();
    let edit = applied(reloader.reload());
    assert_eq!(keys(&edit.changes), ["http-port", "hsts"]);
    assert_eq!(keys(&edit.pending), ["http-port"]);
    assert_eq!((edit.settings.http_port, edit.settings.hsts), (8080, false));

    fs::write(&file, "http-port: 80\nhsts: true").unwrap();
    let edit = applied(reloader.reload());
    assert_eq!((keys(&edit.changes), keys(&edit.pending)), (vec!["hsts"], vec!["http-port"]));

    fs::write(&file, "").unwrap();
    let edit = applied(reloader.reload());
    assert_eq!((keys(&edit.changes), keys(&edit.pending)), (vec!["http-port"], vec![]));
    assert_eq!(*edit.settings, Settings::default());
}

#[test]
fn an_edit_of_any_setting_is_applied_or_pending() {
    for field in FIELDS {
        let (_folder, file) = file_with("");
        let mut reloader = reloader(&file);
        fs::write(&file, format!("{}: {}", field.key, field.example)).unwrap();
        let edit = applied(reloader.reload());
        assert_eq!(keys(&edit.changes), [field.key]);
        let was = (field.get)(&Settings::default());
        match field.class {
            Class::Dynamic => {
                assert_eq!(edit.pending, []);
                assert_eq!((field.get)(&edit.settings), edit.changes[0].new);
            }
            Class::Restart(_) => {
                assert_eq!(edit.pending, edit.changes);
                assert_eq!((field.get)(&edit.settings), was);
            }
        }
    }
}

#[test]
fn a_bad_edit_is_told_once_and_changes_nothing() {
    let (_folder, file) = file_with("hsts: false");
    let mut reloader = reloader(&file);
    fs::write(&file, "hsts: maybe\nhttp-port: 80").unwrap();
    let Some(Reload::Rejected(error)) = reloader.reload() else { panic!("the edit is bad") };
    assert!(error.to_string().ends_with("hsts: \"maybe\" is not true or false"), "{error}");
    assert!(reloader.reload().is_none());

    fs::remove_file(&file).unwrap();
    assert!(matches!(reloader.reload(), Some(Reload::Rejected(LoadError::Read { .. }))));

    fs::write(&file, "hsts: false\nhttp-port: 80").unwrap();
    let edit = applied(reloader.reload());
    assert_eq!(keys(&edit.changes), ["http-port"]);
}

#[test]
fn taking_a_bad_edit_back_is_news_without_changes() {
    let (_folder, file) = file_with("hsts: false");
    let mut reloader = reloader(&file);
    fs::write(&file, "hsts: maybe").unwrap();
    assert!(matches!(reloader.reload(), Some(Reload::Rejected(_))));
    fs::write(&file, "hsts: false").unwrap();
    let edit = applied(reloader.reload());
    assert_eq!(edit.changes, []);
    assert!(!edit.settings.hsts);
}

/// Runs a reloader over `file`, with a ConfigMap to send.
fn run(file: &Path) -> (mpsc::Receiver<Reload>, watch::Sender<Option<ConfigMap>>) {
    let (reloads, receiver) = mpsc::channel(16);
    let (config_map, config_maps) = watch::channel(None);
    tokio::spawn(reloader(file).run(config_maps, reloads));
    (receiver, config_map)
}

async fn next(reloads: &mut mpsc::Receiver<Reload>) -> Reload {
    timeout(GIVE_UP, reloads.recv()).await.expect("a reload").expect("the reloader runs")
}

#[tokio::test]
async fn a_rename_over_the_file_is_seen() {
    let (folder, file) = file_with("hsts: true");
    let (mut reloads, _config_map) = run(&file);
    for (content, hsts) in [("hsts: false", false), ("hsts: true", true)] {
        let draft = folder.path().join(".settings.yaml.swp");
        fs::write(&draft, content).unwrap();
        fs::rename(&draft, &file).unwrap();
        let edit = applied(Some(next(&mut reloads).await));
        assert_eq!(edit.settings.hsts, hsts);
    }
}

#[tokio::test]
async fn a_bad_edit_and_a_good_one_are_seen() {
    let (_folder, file) = file_with("hsts: true");
    let (mut reloads, _config_map) = run(&file);
    fs::write(&file, "hsts: maybe").unwrap();
    assert!(matches!(next(&mut reloads).await, Reload::Rejected(_)));
    fs::write(&file, "hsts: false").unwrap();
    assert!(!applied(Some(next(&mut reloads).await)).settings.hsts);
}

/// The kubelet writes a new folder and renames a link to it over `..data`; the file's own link never changes.
#[tokio::test]
async fn every_swap_of_a_mounted_config_map_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let swap = |version: &str, content: &str| {
        fs::create_dir(path.join(version)).unwrap();
        fs::write(path.join(version).join("settings.yaml"), content).unwrap();
        symlink(version, path.join("..data_tmp")).unwrap();
        fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    };
    swap("..1", "keep-alive: 1");
    symlink("..data/settings.yaml", path.join("settings.yaml")).unwrap();
    let (mut reloads, _config_map) = run(&path.join("settings.yaml"));
    for seconds in 2..5 {
        swap(&format!("..{seconds}"), &format!("keep-alive: {seconds}"));
        fs::remove_dir_all(path.join(format!("..{}", seconds - 1))).unwrap();
        assert_eq!(applied(Some(next(&mut reloads).await)).settings.keep_alive.as_secs(), seconds);
    }
}

#[tokio::test]
async fn the_config_map_lies_below_the_file() {
    let (_folder, file) = file_with("hsts: true");
    let (mut reloads, config_map) = run(&file);
    let data = [("hsts", "false"), ("keep-alive", "1")];
    let metadata = Metadata {
        name: ObjectName::new("ingress", "settings"),
        created: None,
        labels: Default::default(),
        annotations: Default::default(),
    };
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    config_map.send_replace(Some(ConfigMap { metadata, data }));
    let edit = applied(Some(next(&mut reloads).await));
    assert_eq!(keys(&edit.changes), ["keep-alive"]);
    assert!(edit.settings.hsts);
}

#[tokio::test]
async fn it_ends_when_nobody_listens() {
    let (_folder, file) = file_with("");
    let (reloads, receiver) = mpsc::channel(1);
    let (_config_map, config_maps) = watch::channel(None);
    let task = tokio::spawn(reloader(&file).run(config_maps, reloads));
    drop(receiver);
    timeout(GIVE_UP, task).await.expect("it ends").unwrap();
}
