//! `portcullis tickets rotate`: gives the Secret with the session ticket keys of replicas a new key and takes
//! the oldest away. Run it by a CronJob; gateways take the change over by themselves.
//!
//! A key is named by the time it was made, so that the order of names is the order of age. No key is printed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use aws_lc_rs::rand;
use clap::{Args, Subcommand, value_parser};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::api_server::{self, ApiError};
use crate::store::objects::{ObjectName, TICKET_KEYS_TYPE, is_label, is_subdomain};

/// What a key file has.
const KEY_FILE: usize = 80;
/// How keys are named: by a date that sorts.
const NAME: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// Make and rotate the session ticket keys that replicas share
#[derive(Args, Clone, Debug)]
pub struct TicketsArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    Rotate(RotateArgs),
}

/// Add a key to the Secret, which is made where there is none, and drop the oldest beyond those to keep
///
/// The new key encrypts sessions from now on; those kept still decrypt what they encrypted, so that no client
/// loses its session. A key decrypts until as many rotations have followed as keys are kept: that should take longer
/// than sessions last (setting `ssl-session-timeout`).
#[derive(Args, Clone, Debug)]
struct RotateArgs {
    /// The Secret, as the setting `ssl-session-ticket-secret` names it
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = secret_name)]
    secret: ObjectName,
    /// Keys to keep, the new one included
    #[arg(long, value_name = "KEYS", default_value_t = 3, value_parser = value_parser!(u8).range(2..=16))]
    keep: u8,
    /// Manifest file to keep the Secret in, for the directory source, in place of a cluster
    #[arg(long, value_name = "FILE", conflicts_with = "kubeconfig")]
    file: Option<PathBuf>,
    /// Kubeconfig file; without one the Service Account of the pod, then `~/.kube/config`
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Why the keys are as they were.
#[derive(Debug, thiserror::Error)]
pub enum TicketsError {
    #[error("Secret {0} is not of type {TICKET_KEYS_TYPE} and is left as it is")]
    WrongType(ObjectName),
    #[error(
        "Secret {secret} has a key {name:?}, whose name comes after that of a key made now; \
         the last name counts as the newest key: rename or delete it"
    )]
    NotNewest { secret: ObjectName, name: String },
    #[error("the system gave no random bytes")]
    NoRandom,
    #[error(transparent)]
    Connect(#[from] ApiError),
    #[error("the API server did not do it: {0}")]
    Api(#[from] Box<kube::Error>),
    #[error("cannot begin: {0}")]
    Runtime(io::Error),
    #[error("{file}: {source}")]
    File { file: PathBuf, source: io::Error },
    #[error("{0} holds no Secret manifest that can be read, or not the one that is named")]
    Manifest(PathBuf),
}

impl TicketsArgs {
    /// Rotates, and tells which keys there are now.
    ///
    /// # Errors
    /// The keys are as they were.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Rotate(args) = &self.command;
        let rotated = match &args.file {
            Some(file) => args.rotate_file(file)?,
            None => args.rotate_in_cluster()?,
        };
        let names: Vec<_> = rotated.data.iter().flatten().rev().map(|(name, _)| name.as_str()).collect();
        println!("Secret {} has the keys {} (newest first).", args.secret, names.join(", "));
        Ok(ExitCode::SUCCESS)
    }
}

impl RotateArgs {
    fn rotate_in_cluster(&self) -> Result<Secret, TicketsError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(TicketsError::Runtime)?;
        runtime.block_on(async {
            let client = api_server::connect(self.kubeconfig.as_deref()).await?.client().clone();
            let secrets: Api<Secret> = Api::namespaced(client, &self.secret.namespace);
            let before = secrets.get_opt(&self.secret.name).await.map_err(Box::new)?;
            let after = self.rotated(before.clone())?;
            // With the version that was read: whoever wrote in between is not undone.
            let written = match before {
                Some(_) => secrets.replace(&self.secret.name, &PostParams::default(), &after).await,
                None => secrets.create(&PostParams::default(), &after).await,
            };
            Ok(written.map_err(Box::new)?)
        })
    }

    /// Writes a new file and renames it, so that no gateway ever reads half of one.
    fn rotate_file(&self, file: &Path) -> Result<Secret, TicketsError> {
        let failed = |source| TicketsError::File { file: file.to_owned(), source };
        let before = match std::fs::read_to_string(file) {
            Ok(text) => {
                let secret: Option<Secret> = serde_saphyr::from_str(&text).ok();
                let named = secret.filter(|secret| {
                    let namespace = secret.metadata.namespace.as_deref().unwrap_or("default");
                    secret.metadata.name.as_deref() == Some(&*self.secret.name)
                        && namespace == &*self.secret.namespace
                });
                Some(named.ok_or_else(|| TicketsError::Manifest(file.to_owned()))?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let after = self.rotated(before)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A dot file, which the directory source passes over; readable for its owner alone.
        let mut next = tempfile::Builder::new()
            .prefix(".tickets-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(failed)?;
        serde_json::to_writer_pretty(&mut next, &after).map_err(|error| failed(error.into()))?;
        next.write_all(b"\n").and_then(|()| next.as_file().sync_all()).map_err(failed)?;
        next.persist(file).map_err(|error| failed(error.error))?;
        Ok(after)
    }

    fn rotated(&self, before: Option<Secret>) -> Result<Secret, TicketsError> {
        let mut key = vec![0; KEY_FILE];
        rand::fill(&mut key).map_err(|_| TicketsError::NoRandom)?;
        let now = unnamed_second(before.as_ref());
        rotated(before, &self.secret, self.keep.into(), now, ByteString(key))
    }
}

/// Now, or the next second where this one has a key already: a key has the name of its second.
fn unnamed_second(before: Option<&Secret>) -> OffsetDateTime {
    let now = OffsetDateTime::now_utc();
    let name = now.format(NAME).unwrap_or_default();
    if before.and_then(|secret| secret.data.as_ref()).is_none_or(|keys| !keys.contains_key(&name)) {
        return now;
    }
    let rest = 1_000_000_000_u32.saturating_sub(now.nanosecond());
    std::thread::sleep(Duration::from_nanos(rest.into()));
    OffsetDateTime::now_utc()
}

/// The Secret `name` as `before` is, with `key`, made `now`, and no more than `keep` keys.
fn rotated(
    before: Option<Secret>,
    name: &ObjectName,
    keep: usize,
    now: OffsetDateTime,
    key: ByteString,
) -> Result<Secret, TicketsError> {
    let fresh = || Secret {
        metadata: ObjectMeta {
            name: Some(name.name.to_string()),
            namespace: Some(name.namespace.to_string()),
            ..ObjectMeta::default()
        },
        type_: Some(TICKET_KEYS_TYPE.into()),
        ..Secret::default()
    };
    let mut secret = before.unwrap_or_else(fresh);
    if secret.type_.as_deref() != Some(TICKET_KEYS_TYPE) {
        return Err(TicketsError::WrongType(name.clone()));
    }
    let text = secret.string_data.take().unwrap_or_default();
    let text = text.into_iter().map(|(name, value)| (name, ByteString(value.into_bytes())));
    let mut keys: BTreeMap<_, _> = secret.data.take().unwrap_or_default();
    keys.extend(text);
    // A date of four digits is all that there is to format: it cannot fail.
    let new = now.format(NAME).unwrap_or_default();
    if let Some((last, _)) = keys.last_key_value()
        && *last >= new
    {
        return Err(TicketsError::NotNewest { secret: name.clone(), name: last.clone() });
    }
    keys.insert(new, key);
    while keys.len() > keep {
        keys.pop_first();
    }
    secret.data = Some(keys);
    Ok(secret)
}

fn secret_name(text: &str) -> Result<ObjectName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if is_label(namespace) && is_subdomain(name) => {
            Ok(ObjectName::new(namespace, name))
        }
        _ => Err("expected namespace/name".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(secret: &Secret) -> Vec<&str> {
        secret.data.iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    fn rotate(before: Option<Secret>, second: u64) -> Result<Secret, TicketsError> {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second);
        let name = ObjectName::new("edge", "tickets");
        rotated(before, &name, 3, now, ByteString(vec![second as u8; KEY_FILE]))
    }

    #[test]
    fn a_rotation_adds_the_newest_and_drops_the_oldest() {
        let mut secret = rotate(None, 0).unwrap();
        assert_eq!(secret.type_.as_deref(), Some(TICKET_KEYS_TYPE));
        for second in 1..4 {
            secret = rotate(Some(secret), second).unwrap();
        }
        assert_eq!(names(&secret), ["20270115T080001Z", "20270115T080002Z", "20270115T080003Z"]);
        let newest = secret.data.as_ref().unwrap().last_key_value().unwrap().1;
        assert_eq!(newest.0, [3; KEY_FILE]);
    }

    #[test]
    fn keys_of_others_are_kept_while_they_are_older() {
        let mut secret = rotate(None, 0).unwrap();
        secret.string_data = Some([("2026".to_owned(), "text".to_owned())].into());
        let secret = rotate(Some(secret), 1).unwrap();
        assert_eq!(names(&secret), ["2026", "20270115T080000Z", "20270115T080001Z"]);
    }

    #[test]
    fn what_would_not_become_the_newest_is_refused() {
        let mut secret = rotate(None, 0).unwrap();
        secret.data.as_mut().unwrap().insert("current".into(), ByteString(Vec::new()));
        let refused = rotate(Some(secret.clone()), 1).unwrap_err();
        assert!(matches!(&refused, TicketsError::NotNewest { name, .. } if name == "current"), "{refused}");
        secret.type_ = Some("Opaque".into());
        assert!(matches!(rotate(Some(secret), 1), Err(TicketsError::WrongType(_))));
    }

    #[test]
    fn a_file_is_made_and_rotated_and_never_another_secret_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tickets.yaml");
        let args = |secret| RotateArgs {
            secret: ObjectName::new("edge", secret),
            keep: 3,
            file: Some(file.clone()),
            kubeconfig: None,
        };
        let first = args("tickets").rotate_file(&file).unwrap();
        let read = || serde_saphyr::from_str::<Secret>(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(read(), first);
        assert!(matches!(args("other").rotate_file(&file), Err(TicketsError::Manifest(_))));
        assert_eq!(read(), first);
        let second = args("tickets").rotate_file(&file).unwrap();
        assert_eq!(names(&second).len(), 2, "a rotation in the same second waits for the next");
        assert_eq!(read(), second);
        std::fs::write(&file, "kind: [").unwrap();
        assert!(matches!(args("tickets").rotate_file(&file), Err(TicketsError::Manifest(_))));
    }
}
