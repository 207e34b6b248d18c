//! The files by which processes of one account find clusters, and folders that nobody else can read.
//!
//! # Rules
//! * A controller holds a lock on its file for as long as it lives: the system lets go of it however the controller ends. Where nobody
//!   holds it, the controller is gone, and whoever looks removes the file.
//! * A file that another machine's controller wrote, where folders are shared, is looked at the same way. It is not removed, because
//!   such folders need not tell locks of other machines: who looks tries whether somebody listens there.

use super::{Known, Rendezvous, parsed};
use crate::cluster::{ClusterError, Token};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where they are, among what commands leave.
const FOLDER: &str = "clusters";
/// How long a controller of another machine may take to be there.
const ANSWER: Duration = Duration::from_millis(500);

/// What the file says.
#[derive(Serialize, Deserialize)]
pub(super) struct RendezvousFile {
    pub(super) address: SocketAddr,
    pub(super) token: String,
    /// The machine that the controller runs on.
    #[serde(default)]
    host: String,
    /// The folder with the certificates of a cluster that uses TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<PathBuf>,
}

/// The file of a controller that lives. Dropping it removes the file, if it is still this cluster's.
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    token: Token,
    /// Locked.
    _file: File,
}

impl Published {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if let Ok(Some(found)) = read(&self.path)
            && found.token == self.token
        {
            // Whoever finds it finds nobody listening.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Rendezvous {
    /// Writes the file by which other processes of this account find the cluster, for as long as the result lives.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn publish(&self) -> Result<Published, ClusterError> {
        let path = path_in(&Rendezvous::private_folder(FOLDER)?, self.address);
        let found = RendezvousFile {
            address: self.address,
            token: self.token.to_hex(),
            host: host(),
            tls: self.tls.as_ref().map(|tls| tls.folder().to_owned()),
        };
        let text = toml::to_string(&found).expect("four texts");
        let failed = |source| ClusterError::File {
            path: path.clone(),
            source,
        };
        // Made anew under another name: whoever looks sees the old one or the whole new one, with its lock.
        let fresh = path.with_extension(format!("{}", std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        let written = || {
            let mut file = private_file(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            match file.try_lock() {
                // A folder that has no locks has others look whether somebody listens.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => return Err(ErrorKind::WouldBlock.into()),
            }
            std::fs::rename(&fresh, &path)?;
            Ok(file)
        };
        let file = written().map_err(|source| {
            let _ = std::fs::remove_file(&fresh);
            failed(source)
        })?;
        Ok(Published {
            path: path.clone(),
            token: self.token.clone(),
            _file: file,
        })
    }

    /// Where what commands leave for later ones is kept: files of this account.
    ///
    /// # Errors
    /// When the environment names no place for it.
    pub fn state_folder() -> Result<PathBuf, ClusterError> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let state = set("XDG_STATE_HOME").map(PathBuf::from);
        let home = || set("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        let folder = state.or_else(home).ok_or_else(|| ClusterError::WhichCluster {
            why: "neither XDG_STATE_HOME nor HOME is set, so there is no place for the cluster's file; set one of them".into(),
        })?;
        Ok(folder.join("brambling"))
    }

    /// A folder of this name there, which nobody else can read; made if need be.
    ///
    /// # Errors
    /// When the environment names no place for it, or the system refuses.
    pub fn private_folder(name: &str) -> Result<PathBuf, ClusterError> {
        let ours = Rendezvous::state_folder()?;
        let folder = ours.join(name);
        for path in [&ours, &folder] {
            private_folder(path).map_err(|source| ClusterError::File {
                path: path.clone(),
                source,
            })?;
        }
        Ok(folder)
    }
}

/// Whatever the account's umask says, and whoever made it.
fn private_folder(path: &Path) -> std::io::Result<()> {
    const MODE: u32 = 0o700;
    DirBuilder::new().recursive(true).mode(MODE).create(path)?;
    match std::fs::metadata(path)?.mode() & 0o777 {
        MODE => Ok(()),
        _ => std::fs::set_permissions(path, Permissions::from_mode(MODE)),
    }
}

/// A new file that nobody else can read, whatever the account's umask says.
///
/// # Errors
/// When it is there already, or the system refuses.
fn private_file(path: &Path) -> std::io::Result<File> {
    const MODE: u32 = 0o600;
    let mut options = OpenOptions::new();
    let options = options.append(true).create_new(true).mode(MODE);
    let file = options.open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

pub(super) fn folder() -> Result<PathBuf, ClusterError> {
    Ok(Rendezvous::state_folder()?.join(FOLDER))
}

fn host() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

pub(super) fn path_in(folder: &Path, address: SocketAddr) -> PathBuf {
    // Colons of an address are no good in a file's name everywhere.
    let name = address.to_string().replace([':', '[', ']'], "_");
    folder.join(format!("{name}.toml"))
}

/// What a file says; none where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Known>, ClusterError> {
    let file = opened(path)?;
    let said = file.map(|file| said(&file, path)).transpose()?;
    Ok(said.map(|(known, _)| known))
}

fn opened(path: &Path) -> Result<Option<File>, ClusterError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ClusterError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// What a file says of a cluster, and the machine that its controller runs on.
fn said(mut file: &File, path: &Path) -> Result<(Known, String), ClusterError> {
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|source| ClusterError::File {
            path: path.to_owned(),
            source,
        })?;
    let place = path.display().to_string();
    let found: RendezvousFile = toml::from_str(&text).map_err(|error| ClusterError::BadToken {
        place: place.clone(),
        why: error.message().to_owned(),
    })?;
    let known = Known {
        address: found.address,
        token: parsed(&found.token, &place)?,
        tls: found.tls,
    };
    Ok((known, found.host))
}

/// The clusters whose controllers live, by the files of a folder. Files of those that are gone are removed.
pub(super) fn living(folder: &Path) -> Result<Vec<Known>, ClusterError> {
    let failed = |source| ClusterError::File {
        path: folder.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|it| it == "toml"))
        .collect();
    paths.sort();
    let living = paths.iter().filter_map(|path| alive(path).transpose());
    living.collect()
}

/// The cluster of a file, if its controller lives.
fn alive(path: &Path) -> Result<Option<Known>, ClusterError> {
    let Some(file) = opened(path)? else {
        return Ok(None);
    };
    let (known, its_host) = said(&file, path)?;
    let is_let_go = match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return Ok(Some(known)),
        Ok(()) => true,
        // There are no locks here.
        Err(TryLockError::Error(_)) => false,
    };
    if is_let_go && its_host == host() {
        remove(&file, path);
        return Ok(None);
    }
    let is_there = TcpStream::connect_timeout(&known.address, ANSWER).is_ok();
    Ok(is_there.then_some(known))
}

/// Removes a file that nobody holds, unless another one has taken its place.
fn remove(file: &File, path: &Path) {
    let is_same = match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(there)) => (held.dev(), held.ino()) == (there.dev(), there.ino()),
        _ => false,
    };
    if is_same {
        // Who cannot remove it does not take it for a cluster all the same.
        let _ = std::fs::remove_file(path);
    }
}
