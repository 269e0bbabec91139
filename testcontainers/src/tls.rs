//! Certificates for a test: an authority of its own, what it issues, and where the files are.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::Error;
use crate::error::Doing;
use crate::names::unique_name;

/// Whom clients reach: every server of ours listens on the loopback address.
const SERVER_NAMES: [&str; 2] = ["127.0.0.1", "localhost"];

/// A certificate with its key, as PEM (the key in PKCS #8).
#[derive(Clone)]
pub(crate) struct Certified {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The key is nobody's business, not even a test's: it is in a file.
impl std::fmt::Debug for Certified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certified").finish_non_exhaustive()
    }
}

/// An authority that nobody trusts but the test.
#[derive(Debug)]
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Result<Authority, Error> {
        // A name that no other one has: an issuer is looked for by its name first.
        let mut params = named(&unique_name("levada test authority"), &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server on the loopback address.
    pub(crate) fn for_server(&self) -> Result<Certified, Error> {
        self.issue(named("localhost", &SERVER_NAMES)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a certificate for a client; servers take its common name for the user's.
    pub(crate) fn for_client(&self, user: &str) -> Result<Certified, Error> {
        self.issue(named(user, &[])?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Certified, Error> {
        params.extended_key_usages.push(usage);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Certified { certificate, key: key.serialize_pem() })
    }
}

fn named(common_name: &str, subject_alternatives: &[&str]) -> Result<CertificateParams, Error> {
    let names: Vec<String> = subject_alternatives.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

/// The files that a client of a TLS server needs, all PEM. They go with the server's handle.
#[derive(Clone, Debug)]
pub struct ClientFiles {
    /// The certificate of the authority that signed the server's certificate.
    pub authority: PathBuf,
    /// The client's own certificate, whose common name is the user.
    pub certificate: PathBuf,
    /// The key of it, unencrypted, in PKCS #8.
    pub key: PathBuf,
}

impl ClientFiles {
    /// Issues a certificate for `user` and writes the files into `folder`.
    pub(crate) fn write(folder: &Path, authority: &Authority, user: &str) -> Result<ClientFiles, Error> {
        let client = authority.for_client(user)?;
        let files = ClientFiles {
            authority: folder.join("authority.pem"),
            certificate: folder.join("client.pem"),
            key: folder.join("client.key"),
        };
        write_private(&files.authority, authority.certificate())?;
        write_private(&files.certificate, &client.certificate)?;
        write_private(&files.key, &client.key)?;
        Ok(files)
    }
}

/// Writes a file that only its owner may read: clients and servers refuse a key that others may.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    let mut file = fs::File::options();
    let file = file.write(true).create(true).truncate(true).mode(0o600);
    file.open(path).and_then(|mut file| file.write_all(text.as_bytes())).doing("write", path)
}
