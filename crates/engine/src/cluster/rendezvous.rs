//! Where processes of one account find a cluster: a file for each, with its address, its token and the folder of its certificates if it
//! uses TLS, readable for nobody else.

mod published;

pub use published::Published;

use super::wire;
use super::{Certificates, ClusterError, DEFAULT_PORT, Token};
use published::{RendezvousFile, folder, path_in, read};
use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The variable that holds a token.
pub const TOKEN_VARIABLE: &str = "BRAMBLING_TOKEN";
/// The variable that names a file with a token.
pub const TOKEN_FILE_VARIABLE: &str = "BRAMBLING_TOKEN_FILE";
/// The variable that holds a controller's address, where none is named.
pub const CONTROLLER_VARIABLE: &str = "BRAMBLING_CONTROLLER";

/// A token is shorter, with the end of its line.
const LINE_BYTES: u64 = 100;

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
    /// token comes from `token_file`, else from BRAMBLING_TOKEN, else from the file that BRAMBLING_TOKEN_FILE names, else from the one that a
    /// controller of this account wrote. The certificates
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
        match given(token_file) {
            Given::File(path) => token_in(&path).map(|(token, _)| Some(token)),
            Given::Text(text) => parsed(&text, TOKEN_VARIABLE).map(Some),
            Given::Nothing => Ok(None),
        }
    }

    /// The cluster of which [`Children`](super::Children) are workers: its token is the first line of `input`, and nobody but this process
    /// has seen it. The certificates are those of BRAMBLING_TLS.
    ///
    /// # Errors
    /// When there is no token, or a file cannot be used.
    pub fn handed_over(
        address: &str,
        input: &mut impl BufRead,
    ) -> Result<Rendezvous, ClusterError> {
        let mut line = String::new();
        let read = input.by_ref().take(LINE_BYTES).read_line(&mut line);
        read.map_err(|source| ClusterError::System { source })?;
        Ok(Rendezvous {
            address: wire::address(address)?,
            token: parsed(line.trim_end(), "standard input")?,
            tls: Certificates::given(None)?,
        })
    }
}

/// How a user names a token.
enum Given {
    File(PathBuf),
    Text(String),
    Nothing,
}

fn given(token_file: Option<&Path>) -> Given {
    let named = || std::env::var_os(TOKEN_FILE_VARIABLE).filter(|path| !path.is_empty());
    match (token_file, std::env::var(TOKEN_VARIABLE)) {
        (Some(path), _) => Given::File(path.to_owned()),
        (None, Ok(text)) => Given::Text(text),
        (None, Err(_)) => named().map_or(Given::Nothing, |path| Given::File(path.into())),
    }
}

/// The cluster at an address that somebody names.
fn known_at(text: &str, token_file: Option<&Path>, folder: &Path) -> Result<Known, ClusterError> {
    let text = match text.parse::<SocketAddr>().is_ok() || text.contains(':') {
        true => text.to_owned(),
        false => format!("{text}:{DEFAULT_PORT}"),
    };
    let address = wire::address(&text)?;
    let path = path_in(folder, address);
    let (token, tls) = match given(token_file) {
        Given::File(file) => token_in(&file)?,
        Given::Text(text) => {
            let token = parsed(&text, TOKEN_VARIABLE)?;
            // What a file says of another cluster, or cannot say, is of no interest to who knows the token.
            let known = read(&path).ok().flatten().filter(|it| it.token == token);
            (token, known.and_then(|it| it.tls))
        }
        Given::Nothing => {
            let known = read(&path)?.ok_or(ClusterError::NoToken {
                at: text,
                looked_at: path,
            })?;
            (known.token, known.tls)
        }
    };
    Ok(Known {
        address,
        token,
        tls,
    })
}

fn the_only_one(folder: &Path) -> Result<Known, ClusterError> {
    let mut living = published::living(folder)?;
    let why = match (living.pop(), &living[..]) {
        (Some(one), []) => return Ok(one),
        (None, _) => "no cluster of this account is known; start one with `brambling cluster`, or give its address".to_owned(),
        (Some(last), others) => {
            let names = others.iter().chain([&last]).map(|it| it.address.to_string());
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
    match toml::from_str::<RendezvousFile>(&text) {
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
