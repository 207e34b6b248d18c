//! Where processes of one account find a cluster: a file for each, with its address, its token and the folder of its certificates if it
//! uses TLS, readable for nobody else.

use super::wire;
use super::{Certificates, ClusterError, DEFAULT_PORT, Token};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The variable that holds a token.
pub const TOKEN_VARIABLE: &str = "BRAMBLING_TOKEN";
/// The variable that holds a controller's address, where none is named.
pub const CONTROLLER_VARIABLE: &str = "BRAMBLING_CONTROLLER";

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Found {
    address: SocketAddr,
    token: String,
    /// The folder with the certificates of a cluster that uses TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<PathBuf>,
}

/// What a file has told.
struct Known {
    address: SocketAddr,
    token: Token,
    tls: Option<PathBuf>,
}

/// A cluster's address, its token, and its certificates if it uses TLS.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    /// Where its controller listens.
    pub address: SocketAddr,
    /// What its processes know.
    pub token: Token,
    /// What its processes speak TLS with; none: they do not.
    pub tls: Option<Certificates>,
}

impl Rendezvous {
    /// Finds a cluster. `address` is HOST:PORT or HOST; none: what BRAMBLING_CONTROLLER says, else the one cluster of this account. The
    /// token comes from `token_file`, else from BRAMBLING_TOKEN, else from the file that a controller of this account wrote. The certificates
    /// come from the folder `tls`, else from the one that BRAMBLING_TLS names, else from the one that the file with the token names, if the cluster
    /// uses TLS.
    ///
    /// # Errors
    /// Names what is missing, and the way out.
    pub fn find(
        address: Option<&str>,
        token_file: Option<&Path>,
        tls: Option<&Path>,
    ) -> Result<Rendezvous, ClusterError> {
        let folder = folder()?;
        let variable = std::env::var(CONTROLLER_VARIABLE);
        let variable = variable.ok().filter(|text| !text.is_empty());
        let known = match address.or(variable.as_deref()) {
            None => the_only_one(&folder)?,
            Some(text) => known_at(text, token_file, &folder)?,
        };
        let tls = match (Certificates::given(tls)?, known.tls) {
            (Some(given), _) => Some(given),
            (None, Some(told)) => Some(Certificates::read(&told)?),
            (None, None) => None,
        };
        Ok(Rendezvous {
            address: known.address,
            token: known.token,
            tls,
        })
    }

    /// A new token.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn new_token() -> Result<Token, ClusterError> {
        let random = wire::random().map_err(|source| ClusterError::System { source })?;
        Ok(Token::new(random))
    }

    /// The token that a user names, if one is named.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn given_token(token_file: Option<&Path>) -> Result<Option<Token>, ClusterError> {
        match (token_file, std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => token_in(path).map(|(token, _)| Some(token)),
            (None, Ok(text)) => parsed(&text, TOKEN_VARIABLE).map(Some),
            (None, Err(_)) => Ok(None),
        }
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

    /// Writes the file by which other processes of this account find the cluster, and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn publish(&self) -> Result<PathBuf, ClusterError> {
        let folder = folder()?;
        let path = path_in(&folder, self.address);
        let found = Found {
            address: self.address,
            token: self.token.to_hex(),
            tls: self.tls.as_ref().map(|tls| tls.folder().to_owned()),
        };
        let text = toml::to_string(&found).expect("three texts");
        let failed = |source| ClusterError::File {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        // Made anew under another name: whoever looks sees the old one or the whole new one.
        let fresh = path.with_extension(format!("{}", std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        written
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|source| {
                let _ = std::fs::remove_file(&fresh);
                failed(source)
            })?;
        Ok(path)
    }

    /// Removes the file, if it is still this cluster's.
    pub fn withdraw(&self) {
        let Ok(folder) = folder() else { return };
        let path = path_in(&folder, self.address);
        if let Ok(Some(found)) = read(&path)
            && found.token == self.token
        {
            // Whoever finds it finds nobody listening.
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn folder() -> Result<PathBuf, ClusterError> {
    Ok(Rendezvous::state_folder()?.join("clusters"))
}

fn path_in(folder: &Path, address: SocketAddr) -> PathBuf {
    // Colons of an address are no good in a file's name everywhere.
    let name = address.to_string().replace([':', '[', ']'], "_");
    folder.join(format!("{name}.toml"))
}

/// The cluster at an address that somebody names.
fn known_at(text: &str, token_file: Option<&Path>, folder: &Path) -> Result<Known, ClusterError> {
    let text = match text.parse::<SocketAddr>().is_ok() || text.contains(':') {
        true => text.to_owned(),
        false => format!("{text}:{DEFAULT_PORT}"),
    };
    let address = wire::address(&text)?;
    let path = path_in(folder, address);
    let (token, tls) = match token_file {
        Some(file) => token_in(file)?,
        None => match std::env::var(TOKEN_VARIABLE) {
            Ok(text) => {
                let token = parsed(&text, TOKEN_VARIABLE)?;
                // What a file says of another cluster, or cannot say, is of no interest to who knows the token.
                let known = read(&path).ok().flatten().filter(|it| it.token == token);
                (token, known.and_then(|it| it.tls))
            }
            Err(_) => {
                let known = read(&path)?.ok_or(ClusterError::NoToken {
                    at: text,
                    looked_at: path,
                })?;
                (known.token, known.tls)
            }
        },
    };
    Ok(Known {
        address,
        token,
        tls,
    })
}

fn read(path: &Path) -> Result<Option<Known>, ClusterError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(ClusterError::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let place = path.display().to_string();
    let found: Found = toml::from_str(&text).map_err(|error| ClusterError::BadToken {
        place: place.clone(),
        why: error.message().to_owned(),
    })?;
    Ok(Some(Known {
        address: found.address,
        token: parsed(&found.token, &place)?,
        tls: found.tls,
    }))
}

fn the_only_one(folder: &Path) -> Result<Known, ClusterError> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(source) => {
            return Err(ClusterError::File {
                path: folder.to_owned(),
                source,
            });
        }
    };
    paths.retain(|path| path.extension().is_some_and(|it| it == "toml"));
    paths.sort();
    let why = match &paths[..] {
        [] => "no cluster of this account is known; start one with `brambling cluster`, or give its address".to_owned(),
        [one] => {
            return read(one)?.ok_or_else(|| ClusterError::WhichCluster {
                why: "the cluster has just ended".into(),
            });
        }
        several => {
            let names = several.iter().filter_map(|path| Some(read(path).ok()??.address.to_string()));
            format!(
                "several clusters of this account are known; give the address of one of them: {}",
                names.collect::<Vec<_>>().join(", ")
            )
        }
    };
    Err(ClusterError::WhichCluster { why })
}

/// The token in a file, and the folder of certificates that it names: the file that a controller wrote, or 64 digits alone.
fn token_in(path: &Path) -> Result<(Token, Option<PathBuf>), ClusterError> {
    let text = std::fs::read_to_string(path).map_err(|source| ClusterError::File {
        path: path.to_owned(),
        source,
    })?;
    let place = path.display().to_string();
    match toml::from_str::<Found>(&text) {
        Ok(found) => Ok((parsed(&found.token, &place)?, found.tls)),
        Err(_) => Ok((parsed(&text, &place)?, None)),
    }
}

fn parsed(text: &str, place: &str) -> Result<Token, ClusterError> {
    Token::from_hex(text).map_err(|error| ClusterError::BadToken {
        place: place.to_owned(),
        why: error.to_string(),
    })
}
