use std::time::Duration;

use super::*;
use crate::store::objects::Object;

fn tree(folder: &Path) -> Tree {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("sub/a.yaml"), text).unwrap();
    let mut tree = Tree::new(vec![folder.into()], "pem");
    tree.scan(Instant::now());
    assert_eq!(tree.take_batch().unwrap().events.len(), 1);
    tree
}

/// A folder is swapped for another: at one look it is not there, at the next there is the new one, and what goes from that
/// before it is watched has no event.
#[test]
fn what_goes_from_a_folder_before_that_is_known_again_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = tree(folder.path());
    let now = Instant::now();
    let places = tree.folders.drop(&folder.path().join("sub"));
    tree.look_at(&places, Look::IfChanged, now);
    fs::remove_file(folder.path().join("sub/a.yaml")).unwrap();
    tree.touch(&folder.path().join("sub"), now);
    tree.tick(now + Duration::from_secs(1));
    let batch = tree.take_batch().unwrap();
    assert!(matches!(&*batch.events, [Event::Delete(Kind::ConfigMap, _)]), "{:?}", batch.events);
}

#[test]
fn what_is_there_again_with_its_folder_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = tree(folder.path());
    let now = Instant::now();
    let places = tree.folders.drop(&folder.path().join("sub"));
    tree.look_at(&places, Look::IfChanged, now);
    tree.touch(&folder.path().join("sub"), now);
    tree.tick(now + Duration::from_secs(1));
    assert!(tree.take_batch().is_none());
}

#[test]
fn what_an_object_falls_to_counts_when_it_can_be_read_only_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = tree(folder.path());
    let at = |path: &str| folder.path().join(path);
    let first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {value: first}\n";
    fs::write(at("a.yaml"), first).unwrap();
    let now = Instant::now();
    tree.touch(&at("a.yaml"), now);
    assert_eq!(tree.take_batch().unwrap().events.len(), 1);
    // The folder with the second definition is on its way to another place and back when the first goes.
    fs::rename(at("sub"), at(".away")).unwrap();
    fs::remove_file(at("a.yaml")).unwrap();
    tree.touch(&at("a.yaml"), now);
    tree.tick(now + Duration::from_secs(1));
    fs::rename(at(".away"), at("sub")).unwrap();
    tree.touch(&at("sub"), now + Duration::from_secs(1));
    let batch = tree.take_batch().unwrap();
    let [Event::Apply(Object::ConfigMap(map))] = &*batch.events else { panic!("{:?}", batch.events) };
    assert!(map.data.is_empty());
}
