//! A cluster's certificates: how they are made, and how a process reads its own.
//!
//! A folder holds all that a member needs: the certificate of an authority that exists for this cluster alone, a certificate of it
//! that all members present, and its key. The authority's own key is forgotten as soon as it has signed: nobody can make another certificate
//! that the cluster takes. Folders made elsewhere, with an authority and a certificate for each host, are read the same way.

use super::{ClusterError, wire};
use brambling_exchange::transports::tls::{MEMBER, Tls, TlsError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The variable that holds the folder with a cluster's certificates.
pub const TLS_VARIABLE: &str = "BRAMBLING_TLS";
/// How long new certificates are valid, unless somebody says otherwise.
pub const CERTIFICATES_LAST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// The certificates of the authorities whose members are taken.
const AUTHORITY: &str = "ca.pem";
/// What this process presents.
const CERTIFICATE: &str = "cert.pem";
/// Its key, which nobody else may read.
const KEY: &str = "key.pem";
/// No certificate is valid for longer.
const LAST_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
/// Clocks of other machines may be behind by so much.
const BEHIND: Duration = Duration::from_secs(3_600);

/// What a process needs to take part in a cluster that uses TLS, read from a folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
    tls: Tls,
}

impl Certificates {
    /// Makes an authority, and a certificate for the members of a cluster, and writes them to a new folder that only this account can read.
    /// Without hosts the certificate is good wherever a member runs. With hosts, which are addresses or names that this machine can resolve, it
    /// is good there and on the machine itself: nobody takes it from who listens elsewhere. It lasts for so long, a hundred years at most.
    ///
    /// # Errors
    /// When the folder exists and is not empty, cannot be written, or a host cannot be resolved. Then nothing was written.
    pub fn make(folder: &Path, hosts: &[String], last: Duration) -> Result<(), ClusterError> {
        let (authority, certificate, key) = sign(names(hosts)?, last)?;
        let files = [
            (AUTHORITY, authority.as_bytes(), 0o644),
            (CERTIFICATE, certificate.as_bytes(), 0o644),
            (KEY, key.as_bytes(), 0o600),
        ];
        place(folder, &files)
    }

    /// Reads those of a folder, and makes sure that they are good now.
    ///
    /// # Errors
    /// Names the file, what is wrong with it, and the way out.
    pub fn read(folder: &Path) -> Result<Certificates, ClusterError> {
        let folder = std::path::absolute(folder).map_err(|source| ClusterError::File {
            path: folder.to_owned(),
            source,
        })?;
        let authorities = certificates(&folder.join(AUTHORITY))?;
        let chain = certificates(&folder.join(CERTIFICATE))?;
        let key = key(&folder.join(KEY))?;
        let unusable = |file: &str, why: String| ClusterError::BadCertificates {
            path: folder.join(file),
            why,
        };
        let tls = Tls::new(authorities, chain, &key).map_err(|error| {
            let why = format!("{error}; keep the files together that were made at one time");
            unusable(CERTIFICATE, why)
        })?;
        tls.check()
            .map_err(|error| unusable(CERTIFICATE, fault(&error)))?;
        // Without the way by which it was reached: others read the name.
        let folder = folder.canonicalize().unwrap_or(folder);
        Ok(Certificates { folder, tls })
    }

    /// Those of the folder that a user names, or that BRAMBLING_TLS names, if one is named.
    ///
    /// # Errors
    /// As [`Certificates::read`].
    pub fn given(folder: Option<&Path>) -> Result<Option<Certificates>, ClusterError> {
        let set = std::env::var_os(TLS_VARIABLE).filter(|value| !value.is_empty());
        let set = set.map(PathBuf::from);
        folder
            .or(set.as_deref())
            .map(Certificates::read)
            .transpose()
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn tls(&self) -> Tls {
        self.tls.clone()
    }
}

/// What is wrong with a process's own certificate.
fn fault(error: &TlsError) -> String {
    match error {
        TlsError::Expired => "it has expired, or is not valid yet; make new ones with `brambling certs` for all processes of the cluster, or set \
                              the clock"
            .into(),
        TlsError::Stranger => format!(
            "it is not of the authority in {AUTHORITY}; keep the files together that were made at one time"
        ),
        other => other.to_string(),
    }
}

// ---- reading

fn bytes(path: &Path) -> Result<Vec<u8>, ClusterError> {
    fs::read(path).map_err(|source| ClusterError::NoCertificates {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClusterError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(path)?).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(ClusterError::BadCertificates {
            path: path.to_owned(),
            why: "it holds no certificate in PEM; `brambling certs` makes some".into(),
        }),
    }
}

/// The error says nothing of what the file holds.
fn key(path: &Path) -> Result<Zeroizing<PrivateKeyDer<'static>>, ClusterError> {
    let text = Zeroizing::new(bytes(path)?);
    let key = PrivateKeyDer::from_pem_slice(&text);
    let key = key.map_err(|_| ClusterError::BadCertificates {
        path: path.to_owned(),
        why: "it holds no private key in PEM; `brambling certs` makes one".into(),
    });
    Ok(Zeroizing::new(key?))
}

// ---- making

/// The names in a certificate of members at these hosts.
fn names(hosts: &[String]) -> Result<Vec<String>, ClusterError> {
    if hosts.is_empty() {
        return Ok(vec![MEMBER.to_owned()]);
    }
    let mut names: Vec<String> = ["127.0.0.1", "::1"].map(str::to_owned).into();
    for host in hosts {
        let refuse = |why: String| ClusterError::Host {
            text: host.clone(),
            why,
        };
        if !host.is_ascii() || host.is_empty() {
            return Err(refuse("it is no host's name".into()));
        }
        names.push(host.clone());
        if host.parse::<IpAddr>().is_ok() {
            continue;
        }
        // Links go to addresses: members are told no names.
        let found = (host.as_str(), 0).to_socket_addrs();
        let found = found.map_err(|error| refuse(error.to_string()))?;
        names.extend(found.map(|it| it.ip().to_string()));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn named(name: String) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

/// An authority, a certificate for these names, and its key, in PEM.
fn sign(
    names: Vec<String>,
    last: Duration,
) -> Result<(String, String, Zeroizing<String>), ClusterError> {
    let system = |source| ClusterError::System { source };
    let failed = |error: rcgen::Error| system(std::io::Error::other(error));
    // Two authorities are told apart by their names.
    let random = wire::random().map_err(system)?;
    let random: String = random[..8].iter().map(|it| format!("{it:02x}")).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|error| system(std::io::Error::other(error)))?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let (begin, end) = (
        epoch + now.saturating_sub(BEHIND),
        epoch + now + last.min(LAST_MAX),
    );

    let authority_key = Zeroizing::new(KeyPair::generate().map_err(failed)?);
    let mut authority = CertificateParams::default();
    authority.distinguished_name = named(format!("brambling cluster {random}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (authority.not_before, authority.not_after) = (begin, end);
    let made = authority.self_signed(&*authority_key).map_err(failed)?;
    let issuer = Issuer::from_params(&authority, &*authority_key);

    let key = Zeroizing::new(KeyPair::generate().map_err(failed)?);
    let mut member = CertificateParams::new(names).map_err(failed)?;
    member.distinguished_name = named(format!("member of brambling cluster {random}"));
    member.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    member.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    member.use_authority_key_identifier_extension = true;
    (member.not_before, member.not_after) = (begin, end);
    let member = member.signed_by(&*key, &issuer).map_err(failed)?;
    Ok((
        made.pem(),
        member.pem(),
        Zeroizing::new(key.serialize_pem()),
    ))
}

/// Writes a folder as a whole: whoever looks sees all of its files or none, and nothing is overwritten.
fn place(folder: &Path, files: &[(&str, &[u8], u32)]) -> Result<(), ClusterError> {
    let failed = |path: &Path, source| ClusterError::File {
        path: path.to_owned(),
        source,
    };
    let folder = std::path::absolute(folder).map_err(|source| failed(folder, source))?;
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(failed(&folder, ErrorKind::InvalidInput.into()));
    };
    fs::create_dir_all(above).map_err(|source| failed(above, source))?;
    let name = format!(".{}.{}", name.to_string_lossy(), std::process::id());
    let fresh = above.join(name);
    // Of a process of this number that was killed.
    let _ = fs::remove_dir_all(&fresh);
    let made = write(&fresh, files);
    let placed = made.and_then(|()| fs::rename(&fresh, &folder));
    placed.map_err(|source| {
        let _ = fs::remove_dir_all(&fresh);
        match source.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                ClusterError::FolderInUse {
                    folder: folder.clone(),
                }
            }
            _ => failed(&folder, source),
        }
    })
}

fn write(folder: &Path, files: &[(&str, &[u8], u32)]) -> std::io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)?;
    for (name, bytes, mode) in files {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(*mode);
        let mut file = options.open(folder.join(name))?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    Ok(())
}
