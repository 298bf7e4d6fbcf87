//! The folders and files that were named, and what their paths lead over: a root is another one when its name, or a
//! link on the way to it, is set anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::unit::{Unit, is_volume};

/// Paths in the order that decides who defines an object.
#[derive(Default)]
pub struct Roots(Vec<PathBuf>);

impl Roots {
    /// Without those that lie in another, as named or by way of links, which would be read twice.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let all: Vec<_> = paths.iter().map(|path| (path.clone(), real(path))).collect();
        let inside = |at: usize, path: &Path, real: &Path| {
            let mut others = all.iter().enumerate().filter(|(other, _)| *other != at);
            others.any(|(other, (root, real_root))| match real == real_root {
                true => other < at,
                false => path.starts_with(root) || real.starts_with(real_root),
            })
        };
        let kept = all.iter().enumerate().filter(|(at, (path, real))| !inside(*at, path, real));
        Self(kept.map(|(_, (path, _))| path.clone()).collect())
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// The path of a root.
    pub fn path(&self, root: usize) -> &Path {
        self.0.get(root).map_or(Path::new(""), PathBuf::as_path)
    }

    /// The root that has `path` in it.
    pub fn around(&self, path: &Path) -> Option<usize> {
        self.0.iter().position(|root| path.starts_with(root) && path != root)
    }

    /// The roots that may be others when `path` is: it is one of them or of its files, or they are reached over it.
    pub fn over(&self, path: &Path) -> impl Iterator<Item = usize> {
        let volume = path.parent().filter(|_| is_volume(path));
        let leads_to = move |root: &Path| {
            let beside = path.parent() == root.parent();
            root.starts_with(path)
                || volume.is_some_and(|folder| root.starts_with(folder))
                || beside && Unit::of(path).is_some_and(|unit| Unit::of(root) == Some(unit))
        };
        self.0.iter().enumerate().filter(move |(_, root)| leads_to(root)).map(|(at, _)| at)
    }

    /// Whether `path` is of interest, in a folder that is watched for the sake of a root as well.
    pub fn concern(&self, path: &Path) -> bool {
        self.around(path).is_some() || self.over(path).next().is_some()
    }
}

/// The folders in which a root has its name, and each link on the way to it.
pub fn holders(root: &Path) -> BTreeSet<PathBuf> {
    let names = root.ancestors().filter(|path| *path == root || path.is_symlink());
    names.filter_map(Path::parent).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_root_hangs_on_its_name_and_on_the_links_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("releases/1/manifests")).unwrap();
        symlink("releases/1", at("current")).unwrap();
        let root = at("current/manifests");
        assert_eq!(holders(&root), [folder.path().to_owned(), at("current")].into());
        let roots = Roots::new(vec![root.clone(), at("pair/tls.crt")]);
        let over = |path: &str| roots.over(&at(path)).collect::<Vec<_>>();
        assert_eq!(over("current"), [0]);
        assert_eq!(over("current/manifests"), [0]);
        assert_eq!(over("current/other"), [0; 0]);
        assert_eq!(over("pair/tls.key"), [1]);
        assert_eq!(over("pair/..data"), [1]);
        assert_eq!(over("pair/tls.txt"), [0; 0]);
        assert_eq!(over(""), [0, 1]);
        assert_eq!(roots.around(&at("current/manifests/a.yaml")), Some(0));
        assert_eq!(roots.around(&root), None);
        assert!(!roots.concern(&at("pair/other.crt")));
    }

    #[test]
    fn roots_within_others_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        symlink("in", folder.path().join("link")).unwrap();
        let at = |path: &str| folder.path().join(path);
        assert_eq!(Roots::new(vec![at("link"), at("in")]).paths(), [at("link")]);
        assert_eq!(Roots::new(vec![at("in"), folder.path().into()]).paths(), [folder.path()]);
    }
}
