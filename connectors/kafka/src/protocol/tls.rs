//! TLS with brokers: whom we trust, and who we are.

use std::path::Path;
use std::sync::Arc;

use levada_core::BoxError;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::config::{ConfigError, Pem, TlsProperties};

/// Reads the files and makes what connections are encrypted with.
pub(super) fn connector(properties: &TlsProperties) -> Result<TlsConnector, ConfigError> {
    // Named, so that it does not depend on what else the process is built with.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(roots(properties.authorities.as_ref())?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(|cause| unusable("ssl.ca.location", cause))?;
    let verifier: Arc<dyn ServerCertVerifier> =
        if properties.names_are_checked { verifier } else { Arc::new(AnyName(verifier)) };
    let config = builder(provider)?.dangerous().with_custom_certificate_verifier(verifier);
    let config = match &properties.own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let property = certificate.property();
            let (chain, key) = (certificates(certificate)?, private_key(key)?);
            config.with_client_auth_cert(chain, key).map_err(|cause| unusable(property, cause))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

type Builder = tokio_rustls::rustls::ConfigBuilder<ClientConfig, tokio_rustls::rustls::WantsVerifier>;

fn builder(provider: Arc<CryptoProvider>) -> Result<Builder, ConfigError> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|cause| unusable("security.protocol", cause))
}

fn roots(authorities: Option<&Pem>) -> Result<RootCertStore, ConfigError> {
    let mut roots = RootCertStore::empty();
    let Some(authorities) = authorities else {
        // One of the system's many may be odd; that there are none at all is an error of its own.
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(unusable("ssl.ca.location", "it is not given, and the system trusts nobody"));
        }
        return Ok(roots);
    };
    for certificate in certificates(authorities)? {
        roots.add(certificate).map_err(|cause| unusable(authorities.property(), cause))?;
    }
    Ok(roots)
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read = match pem {
        Pem::File(property, path) => {
            let bytes = contents(property, path)?;
            CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>()
        }
        Pem::Text(_, text) => CertificateDer::pem_slice_iter(text.as_bytes()).collect(),
    };
    let certificates = read.map_err(|cause| unusable(pem.property(), cause))?;
    if certificates.is_empty() {
        return Err(unusable(pem.property(), "there is no certificate in it, in PEM"));
    }
    Ok(certificates)
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let read = match pem {
        Pem::File(property, path) => PrivateKeyDer::from_pem_slice(&contents(property, path)?),
        Pem::Text(_, text) => PrivateKeyDer::from_pem_slice(text.as_bytes()),
    };
    // The cause may not be shown: it is about a key.
    read.map_err(|_| unusable(pem.property(), "there is no unencrypted private key in it, in PEM"))
}

fn contents(property: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    let named = |cause| format!("{}: {cause}", path.display());
    std::fs::read(path).map_err(|cause| unusable(property, named(cause)))
}

fn unusable(property: &'static str, cause: impl Into<BoxError>) -> ConfigError {
    ConfigError::Unusable { property, cause: cause.into() }
}

/// Takes a certificate of anybody whom our authorities have signed for
/// (`ssl.endpoint.identification.algorithm = none`).
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last, when everything else was found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
