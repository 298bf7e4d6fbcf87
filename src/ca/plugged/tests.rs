use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use super::*;
use crate::ca::distribution::{self, MapNames};
use crate::ca::fixtures::{Made, NOW, ca_params, hours, issue, namespace, openssl_verify, revocation_list};
use crate::ca::store::memory::Memory;
use crate::store::objects::ObjectName;

fn write(folder: &Path, ca: &Made) {
    fs::create_dir_all(folder).unwrap();
    let chain: String = ca.chain().iter().map(Certificate::to_pem).collect();
    fs::write(folder.join("ca-cert.pem"), ca.signer().to_pem()).unwrap();
    fs::write(folder.join("ca-key.pem"), ca.key.serialize_pem()).unwrap();
    fs::write(folder.join("cert-chain.pem"), chain).unwrap();
    fs::write(folder.join("root-cert.pem"), ca.root_bundle().to_pem()).unwrap();
}

fn two_levels() -> Made {
    Made::root(ca_params("root")).below(ca_params("signer"))
}

#[test]
fn both_layouts_sign() {
    let folder = tempfile::tempdir().unwrap();
    let ca = two_levels();
    write(&folder.path().join("classic"), &ca);
    let tls = folder.path().join("tls");
    fs::create_dir(&tls).unwrap();
    fs::write(tls.join("tls.crt"), ca.signer().to_pem()).unwrap();
    fs::write(tls.join("tls.key"), ca.key.serialize_pem()).unwrap();
    fs::write(tls.join("ca.crt"), ca.root_bundle().to_pem()).unwrap();
    for name in ["classic", "tls"] {
        let (_, authority) = Plugged::load(&folder.path().join(name), NOW).unwrap().unwrap();
        assert_eq!(authority.signer(), ca.signer());
        let issued = issue(&authority, std::time::Duration::from_secs(60), NOW);
        let answer = authority.answer(&issued.leaf);
        assert_eq!(answer.len(), 3);
        assert_eq!(openssl_verify(&answer[..2].concat(), &answer[2], NOW), Ok(()));
    }
}

#[test]
fn ca_17_an_incomplete_set_names_what_is_missing() {
    let all = ["ca-cert.pem", "ca-key.pem", "root-cert.pem", "cert-chain.pem"];
    let source = tempfile::tempdir().unwrap();
    write(source.path(), &two_levels());
    for present in 0..16_usize {
        let folder = tempfile::tempdir().unwrap();
        let (mut kept, mut missing) = (0, BTreeSet::new());
        for (bit, name) in all.iter().enumerate() {
            if present & 1 << bit != 0 {
                fs::copy(source.path().join(name), folder.path().join(name)).unwrap();
                kept += 1;
            } else {
                missing.insert(*name);
            }
        }
        match Plugged::load(folder.path(), NOW) {
            Ok(None) => assert_eq!(kept, 0),
            Ok(Some(_)) => assert_eq!(kept, 4),
            Err(PluggedError::Incomplete { missing: named, .. }) => {
                assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), missing);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_lone_tls_key_is_incomplete_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tls.key"), "x").unwrap();
    assert!(matches!(Plugged::load(folder.path(), NOW), Err(PluggedError::Incomplete { .. })));
}

#[test]
fn a_folder_that_is_not_there_is_no_plugged_in_ca() {
    assert!(Plugged::load(Path::new("/does/not/exist"), NOW).unwrap().is_none());
}

#[test]
fn a_secret_that_a_control_plane_generated_is_not_an_operators_ca() {
    let mut secret = Secret::new(ObjectName::new("istio-system", "cacerts"), "istio.io/ca-root");
    secret.data.insert("ca-cert.pem".to_owned(), "x".into());
    secret.data.insert("istio-generated".to_owned(), "".into());
    assert!(Files::from_secret(&secret).authority(NOW).unwrap().is_none());
}

#[test]
fn errors_name_file_and_cause() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &two_levels());
    fs::write(folder.path().join("ca-key.pem"), "secret words").unwrap();
    let error = Files::read(folder.path()).unwrap().authority(NOW).unwrap_err().to_string();
    assert!(error.contains("ca-key.pem") && error.contains("no PRIVATE KEY block"), "{error}");
    assert!(!error.contains("secret words"));
}

#[tokio::test]
async fn a_new_intermediate_under_the_same_root_is_picked_up_through_a_swapped_link() {
    let store = Memory::default();
    // A mounted Secret: the files are links into ..data, which is a link that is swapped.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let root = Made::root(ca_params("root"));
    write(&path.join("..1"), &root.below(ca_params("first signer")));
    symlink("..1", path.join("..data")).unwrap();
    for name in ["ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem"] {
        symlink(Path::new("..data").join(name), path.join(name)).unwrap();
    }
    let (mut plugged, authority) = Plugged::load(path, NOW).unwrap().unwrap();
    assert!(plugged.reload(&store, &authority, NOW).await.unwrap().is_none());

    let second = root.below(ca_params("second signer"));
    write(&path.join("..2"), &second);
    symlink("..2", path.join("..next")).unwrap();
    fs::rename(path.join("..next"), path.join("..data")).unwrap();
    let next = plugged.reload(&store, &authority, NOW).await.unwrap().unwrap();
    assert_eq!(next.signer(), second.signer());
    assert!(next.roots().same_as(authority.roots()));
}

#[tokio::test]
async fn a_reload_takes_everything_or_nothing() {
    let store = Memory::default();
    let folder = tempfile::tempdir().unwrap();
    let first = two_levels();
    write(folder.path(), &first);
    let (mut plugged, authority) = Plugged::load(folder.path(), NOW).unwrap().unwrap();
    // Half of an update: the certificate without its key.
    fs::write(folder.path().join("ca-cert.pem"), two_levels().signer().to_pem()).unwrap();
    assert!(matches!(plugged.reload(&store, &authority, NOW).await, Err(PluggedError::Material { .. })));
    assert!(plugged.reload(&store, &authority, NOW).await.unwrap().is_none(), "said once for each change");
    fs::remove_file(folder.path().join("ca-key.pem")).unwrap();
    assert!(matches!(plugged.reload(&store, &authority, NOW).await, Err(PluggedError::Incomplete { .. })));
    write(folder.path(), &first);
    assert!(plugged.reload(&store, &authority, NOW).await.unwrap().is_none(), "back to what is in use");
}

#[tokio::test]
async fn unrelated_roots_are_refused_and_reordered_ones_are_the_same() {
    let store = Memory::default();
    let folder = tempfile::tempdir().unwrap();
    let (first, other) = (two_levels(), two_levels());
    write(folder.path(), &first);
    let roots =
        |one: &Made, two: &Made| format!("{}{}", one.root_bundle().to_pem(), two.root_bundle().to_pem());
    fs::write(folder.path().join("root-cert.pem"), roots(&first, &other)).unwrap();
    let (mut plugged, authority) = Plugged::load(folder.path(), NOW).unwrap().unwrap();
    fs::write(folder.path().join("root-cert.pem"), format!("# reordered\n{}", roots(&other, &first)))
        .unwrap();
    assert!(plugged.reload(&store, &authority, NOW).await.unwrap().is_none());
    write(folder.path(), &two_levels());
    assert!(matches!(plugged.reload(&store, &authority, NOW).await, Err(PluggedError::UnrelatedRoots(_))));
}

#[tokio::test]
async fn all_revocation_lists_of_the_file_come_along_and_must_be_good() {
    let may_revoke = |name| {
        let mut params = ca_params(name);
        params.key_usages.push(rcgen::KeyUsagePurpose::CrlSign);
        params
    };
    let root = Made::root(may_revoke("root"));
    let ca = root.below(may_revoke("signer"));
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &ca);
    let load = |lists: &str| {
        fs::write(folder.path().join("ca-crl.pem"), lists).unwrap();
        Files::read(folder.path()).unwrap().authority(NOW).map(Option::unwrap)
    };
    let encode = |list: &[u8]| super::super::pem::encode("X509 CRL", list);
    let [of_root, of_signer] = [&root, &ca].map(|issuer| encode(&revocation_list(issuer, "07")));
    let both = format!("{of_root}{of_signer}");
    let authority = load(&both).unwrap();
    assert_eq!(authority.revocations().len(), 2);
    let maps = distribution::wanted(
        &authority,
        &[namespace("shop", &[])],
        &BTreeMap::new(),
        "istio-system",
        &MapNames::default(),
    );
    let map = maps.iter().find(|map| &*map.name.name == distribution::CRL_MAP).unwrap();
    assert_eq!(map.data["ca-crl.pem"], both);
    // A list that revokes the CA itself reaches everybody too, and is told.
    assert!(!authority.is_revoked());
    let of_itself = load(&encode(&revocation_list(&root, &ca.signer().serial))).unwrap();
    assert!(of_itself.is_revoked());
    // Signed with another key than that of the issuer it names.
    let forged = encode(&revocation_list(&Made::root(may_revoke("root")), "07"));
    let garbage = encode(&[1, 2, 3]);
    let cut = format!("{of_root}-----BEGIN X509 CRL-----\nAAAA\n");
    for bad in [garbage, forged, cut, String::new()] {
        let error = load(&bad).unwrap_err();
        let material =
            matches!(&error, PluggedError::Material { reason: MaterialError::RevocationList(_), .. });
        assert!(material, "{error}");
    }
}

#[tokio::test]
async fn a_ca_that_is_seen_too_early_is_taken_once_it_is_valid() {
    let store = Memory::default();
    let folder = tempfile::tempdir().unwrap();
    let root = Made::root(ca_params("root"));
    write(folder.path(), &root.below(ca_params("first signer")));
    let (mut plugged, authority) = Plugged::load(folder.path(), NOW).unwrap().unwrap();
    let mut params = ca_params("second signer");
    params.not_before = NOW + hours(1);
    let second = root.below(params);
    write(folder.path(), &second);
    assert!(plugged.reload(&store, &authority, NOW).await.is_err());
    assert!(plugged.is_waiting());
    assert!(plugged.reload(&store, &authority, NOW).await.unwrap().is_none(), "said once");
    let next = plugged.reload(&store, &authority, NOW + hours(2)).await.unwrap().unwrap();
    assert_eq!(next.signer(), second.signer());
    assert!(!plugged.is_waiting());
}
