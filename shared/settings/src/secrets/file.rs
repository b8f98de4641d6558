//! Secrets of one machine: an encrypted file, and beside it a key file that only its owner may read. This protects them in
//! backups and searches, but not from anyone who can read both files.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keel_kernel::TenantId;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Secrets, SecretsError};

/// Bytes of the key.
const KEY_LEN: usize = 32;

/// Secrets in an encrypted file, or in memory alone.
pub struct FileSecrets {
    file: Option<PathBuf>,
    key: RandomizedNonceKey,
    /// By `tenant/name`: nonce and ciphertext, in base64.
    sealed: Mutex<BTreeMap<String, String>>,
}

impl FileSecrets {
    /// The secrets of a folder: `secrets.json` and `secrets.key`, created if missing.
    ///
    /// # Errors
    /// If the files cannot be read or created, or are not valid.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let key_file = folder.join("secrets.key");
        let key = match fs::read(&key_file) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = new_key()?;
                write_new(&key_file, &key)?;
                key
            }
            Err(error) => return Err(error),
        };
        let file = folder.join("secrets.json");
        let sealed = match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { file: Some(file), key: cipher(&key)?, sealed: Mutex::new(sealed) })
    }

    /// Secrets that end with the process.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn memory() -> io::Result<Self> {
        Ok(Self { file: None, key: cipher(&new_key()?)?, sealed: Mutex::default() })
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, String>)) -> Result<(), SecretsError> {
        let mut sealed = self.sealed.lock();
        let mut changed = sealed.clone();
        change(&mut changed);
        if let Some(file) = &self.file {
            // Renamed into place, so that a crash leaves either the old file or the new one.
            let text = serde_json::to_vec(&changed).map_err(|e| SecretsError("written", Box::new(e)))?;
            let new = file.with_extension("new");
            let _ = fs::remove_file(&new); // left by a crash
            let written = write_new(&new, &text).and_then(|()| fs::rename(&new, file));
            written.map_err(|e| SecretsError("written", Box::new(e)))?;
        }
        *sealed = changed;
        Ok(())
    }
}

fn new_key() -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_LEN];
    rand::fill(&mut key).map_err(|_| io::Error::other("there is no randomness"))?;
    Ok(key)
}

fn cipher(key: &[u8]) -> io::Result<RandomizedNonceKey> {
    RandomizedNonceKey::new(&AES_256_GCM, key)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "secrets.key is not a key"))
}

fn write_new(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn id(tenant: &TenantId, name: &str) -> String {
    format!("{tenant}/{name}")
}

fn bad(what: &'static str) -> SecretsError {
    SecretsError(what, "a secret does not decrypt with secrets.key".into())
}

#[async_trait]
impl Secrets for FileSecrets {
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SecretString>, SecretsError> {
        let id = id(tenant, name);
        let sealed = self.sealed.lock().get(&id).cloned();
        let Some(sealed) = sealed else { return Ok(None) };
        let bytes = STANDARD.decode(sealed).map_err(|_| bad("read"))?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN).ok_or_else(|| bad("read"))?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| bad("read"))?;
        let mut text = text.to_vec();
        // Bound to its name, so that a secret cannot be moved to another name.
        let opened =
            self.key.open_in_place(nonce, Aad::from(id.as_bytes()), &mut text).map_err(|_| bad("read"))?;
        String::from_utf8(opened.to_vec()).map(|text| Some(text.into())).map_err(|_| bad("read"))
    }

    async fn put(&self, tenant: &TenantId, name: &str, value: SecretString) -> Result<(), SecretsError> {
        let id = id(tenant, name);
        let mut text = value.expose_secret().as_bytes().to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(id.as_bytes()), &mut text)
            .map_err(|_| bad("written"))?;
        let sealed = STANDARD.encode([nonce.as_ref().as_slice(), text.as_slice()].concat());
        self.change(|all| {
            all.insert(id, sealed);
        })
    }

    async fn remove(&self, tenant: &TenantId, name: &str) -> Result<(), SecretsError> {
        self.change(|all| {
            all.remove(&id(tenant, name));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_reads_back_after_a_restart_and_stands_in_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let tenant = TenantId::parse("acme").unwrap();
        let secrets = FileSecrets::open(folder.path()).unwrap();
        for (name, value) in [("a", "visibly-fake-1"), ("b", "visibly-fake-2"), ("a", "visibly-fake-3")] {
            secrets.put(&tenant, name, value.to_owned().into()).await.unwrap();
        }
        drop(secrets);
        let secrets = FileSecrets::open(folder.path()).unwrap();
        let read = async |name| {
            let found = secrets.get(&tenant, name).await.unwrap();
            found.map(|value| value.expose_secret().to_owned())
        };
        assert_eq!(read("a").await.as_deref(), Some("visibly-fake-3"));
        assert_eq!(read("b").await.as_deref(), Some("visibly-fake-2"));
        assert_eq!(read("c").await, None);
        for file in fs::read_dir(folder.path()).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"visibly"));
        }
        secrets.remove(&tenant, "a").await.unwrap();
        assert_eq!(read("a").await, None);
    }

    #[tokio::test]
    async fn a_secret_does_not_open_under_another_name() {
        let tenant = TenantId::parse("acme").unwrap();
        let secrets = FileSecrets::memory().unwrap();
        secrets.put(&tenant, "a", "visibly-fake".to_owned().into()).await.unwrap();
        {
            let mut sealed = secrets.sealed.lock();
            let moved = sealed["acme/a"].clone();
            sealed.insert("acme/b".to_owned(), moved);
        }
        assert!(secrets.get(&tenant, "b").await.is_err());
    }
}
