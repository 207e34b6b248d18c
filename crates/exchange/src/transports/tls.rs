//! What links need to speak TLS: this process's certificate, and the authority that it trusts.
//!
//! Both ends of a link present a certificate and check the other's: one of the cluster's own authority, that is valid now. TLS 1.3 alone,
//! and no session is resumed: who comes back proves again who it is.
//!
//! # Whose certificate it may be
//! A dialer takes a certificate that names [`MEMBER`], wherever its holder is, or the address that was dialed. The processes of
//! a cluster that share one certificate, and may come to run anywhere, have the first kind; the second is for who wants to bind
//! certificates to hosts. A listener does not ask where a dialer is.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The name in the certificate of a member of a cluster that may be anywhere.
pub const MEMBER: &str = "member.brambling.internal";

/// Why two processes do not come to speak TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The other side's certificate is of another authority.
    #[error(
        "its certificate is not of this process's authority; both need certificates that `brambling certs` made at one time"
    )]
    Stranger,
    /// This side's is, as the other side says.
    #[error(
        "it knows no authority that made this process's certificate; both need certificates that `brambling certs` made at one time"
    )]
    StrangerThere,
    /// The other side has none.
    #[error("it has no certificate; give it the cluster's, as --tls DIR or in BRAMBLING_TLS")]
    NoCertificate,
    /// The other side's certificate is not valid any more, or not yet.
    #[error(
        "its certificate has expired, or is not valid yet; give the cluster new ones, made by `brambling certs`, or set the clock"
    )]
    Expired,
    /// This side's is not, as the other side says.
    #[error(
        "by its clock this process's certificate has expired, or is not valid yet; give the cluster new ones, made by `brambling certs`, \
         or set the clock"
    )]
    ExpiredThere,
    /// The other side's certificate is of the authority, and not for where it was found.
    #[error(
        "its certificate is for other hosts than this address; make certificates with this address as a --host, or without any"
    )]
    OtherHost,
    /// The other side said more before it proved anything than proofs take.
    #[error("it says too much before it proves who it is")]
    TooMuch,
    /// Anything else that rustls finds wrong.
    #[error("TLS with it fails: {0}")]
    Failed(Box<rustls::Error>),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use AlertDescription as Alert;
        use CertificateError::{
            BadSignature, Expired, ExpiredContext, NotValidForName, NotValidForNameContext,
            NotValidYet, NotValidYetContext, UnknownIssuer,
        };
        use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
        match error {
            InvalidCertificate(UnknownIssuer | BadSignature) => TlsError::Stranger,
            InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
            ) => TlsError::Expired,
            InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
                TlsError::OtherHost
            }
            NoCertificatesPresented => TlsError::NoCertificate,
            AlertReceived(Alert::UnknownCA | Alert::DecryptError) => TlsError::StrangerThere,
            AlertReceived(Alert::CertificateExpired) => TlsError::ExpiredThere,
            other => TlsError::Failed(Box::new(other)),
        }
    }
}

/// A process's certificate with its key, and the authority whose certificates it takes. Cheap to clone; never shown.
#[derive(Clone)]
pub struct Tls {
    dials: Arc<ClientConfig>,
    listens: Arc<ServerConfig>,
    dialers: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

impl Tls {
    /// A process that presents the first certificate of `chain`, to which `key` belongs, and takes those that an authority of these has made.
    ///
    /// # Errors
    /// When a certificate or the key cannot be read, or they do not belong together. The error shows nothing of the key.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Tls, rustls::Error> {
        let presents = CertifiedKey::new(chain.clone(), any_supported_type(key)?);
        presents.keys_match()?;
        let presents = Arc::new(SingleCertAndKey::from(presents));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let roots = Arc::new(roots);
        let unusable =
            |error: rustls::server::VerifierBuilderError| rustls::Error::General(error.to_string());
        let dialers = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let dialers = dialers.build().map_err(unusable)?;
        let listeners = Listeners::new(roots, provider.clone()).map_err(unusable)?;
        let mut listens = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(dialers.clone())
            .with_cert_resolver(presents.clone());
        listens.send_tls13_tickets = 0;
        listens.session_storage = Arc::new(NoServerSessionStorage {});
        let mut dials = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(listeners))
            .with_client_cert_resolver(presents);
        dials.resumption = Resumption::disabled();
        Ok(Tls {
            dials: Arc::new(dials),
            listens: Arc::new(listens),
            dialers,
            chain,
        })
    }

    /// Whether this process's own certificate would be taken now by one of the same authority.
    ///
    /// # Errors
    /// [`TlsError::Expired`] or [`TlsError::Stranger`], for example.
    pub fn check(&self) -> Result<(), TlsError> {
        let Some((ours, others)) = self.chain.split_first() else {
            return Err(TlsError::NoCertificate);
        };
        let now = UnixTime::now();
        self.dialers.verify_client_cert(ours, others, now)?;
        Ok(())
    }

    pub(super) fn dial(&self, to: IpAddr) -> Result<rustls::Connection, rustls::Error> {
        let at = ServerName::IpAddress(to.into());
        Ok(ClientConnection::new(self.dials.clone(), at)?.into())
    }

    pub(super) fn listen(&self) -> Result<rustls::Connection, rustls::Error> {
        Ok(ServerConnection::new(self.listens.clone())?.into())
    }
}

/// Checks whom this process has dialed: as rustls does, by either of two names.
#[derive(Debug)]
struct Listeners {
    checks: Arc<WebPkiServerVerifier>,
    member: ServerName<'static>,
}

impl Listeners {
    fn new(
        roots: Arc<RootCertStore>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Listeners, rustls::server::VerifierBuilderError> {
        let checks = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
        let member = ServerName::try_from(MEMBER).expect("a name");
        Ok(Listeners { checks, member })
    }
}

impl ServerCertVerifier for Listeners {
    fn verify_server_cert(
        &self,
        theirs: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        dialed: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let check = |name| {
            self.checks
                .verify_server_cert(theirs, others, name, ocsp, now)
        };
        check(&self.member).or_else(|_| check(dialed))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checks.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checks.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.checks.supported_verify_schemes()
    }
}
