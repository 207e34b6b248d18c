//! Certificates as `brambling certs` makes them, and some that it does not make.

// Each test has its own selection.
#![allow(dead_code)]

use brambling_exchange::transports::tls::{MEMBER, Tls};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority, and what it signs.
pub struct Authority {
    key: KeyPair,
    params: CertificateParams,
    certificate: Certificate,
}

/// A certificate, and its key.
pub struct Signed(CertificateDer<'static>, KeyPair);

impl Authority {
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            key,
            params,
            certificate,
        }
    }

    /// A certificate that is valid until a year.
    pub fn sign(&self, names: &[&str], until: i32) -> Signed {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        Signed(params.signed_by(&key, &issuer).unwrap().into(), key)
    }

    /// What a process has that trusts this authority, and presents a certificate of whomever.
    pub fn trusting(&self, Signed(certificate, key): &Signed) -> Tls {
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let authorities = vec![self.certificate.der().clone()];
        let chain = vec![certificate.clone()];
        Tls::new(authorities, chain, &PrivateKeyDer::from(key)).unwrap()
    }

    /// What a member has that may be anywhere.
    pub fn member(&self) -> Tls {
        self.trusting(&self.sign(&[MEMBER], 4096))
    }
}
