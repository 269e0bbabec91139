//! How brokers are spoken to, from the properties that the client library is configured by.
//!
//! [KSK-19] Both clients must speak to the same brokers in the same way; whatever this one cannot do is refused by the name
//! of its property, never passed over.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use super::hostname::WithoutName;

/// How brokers are spoken to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Security {
    /// In the clear.
    Plaintext,
    /// Encrypted; the broker shows a certificate, and we perhaps one of our own.
    Tls(Tls),
}

/// What a TLS session needs.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ClientConfig>,
}

// Keys are in there.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Properties that this client cannot speak by.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// A value that nobody knows, or that this client cannot do yet.
    #[error("{property} is {value:?}: {reason}")]
    Unsupported {
        /// Its name.
        property: &'static str,
        /// Its value; none where it is a secret.
        value: String,
        /// What is possible instead.
        reason: &'static str,
    },
    /// A certificate or key that cannot be read.
    #[error("{property}: {reason}")]
    File {
        /// Which.
        property: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key do not fit, or there is nobody to trust.
    #[error("the certificates cannot be used")]
    Tls(#[source] rustls::Error),
}

type Properties = BTreeMap<String, String>;

/// Those whose default does nothing, and that this client does not do.
const UNSUPPORTED: [(&str, &str); 8] = [
    ("ssl.key.password", "keys must be unencrypted PEM here"),
    ("ssl.keystore.location", "use ssl.certificate.location and ssl.key.location"),
    ("ssl.engine.location", "certificates come from files here"),
    ("ssl.crl.location", "revocation lists are not read here"),
    ("ssl.cipher.suites", "the suites are those of the TLS library"),
    ("ssl.curves.list", "the curves are those of the TLS library"),
    ("ssl.sigalgs.list", "the algorithms are those of the TLS library"),
    ("ssl.providers", "there is one provider here"),
];

impl Security {
    /// Reads librdkafka's properties.
    ///
    /// # Errors
    /// One cannot be obeyed, or a file cannot be read.
    pub fn from_properties(properties: &Properties) -> Result<Self, SecurityError> {
        let protocol = properties.get("security.protocol").map_or("plaintext", String::as_str);
        match protocol.to_ascii_lowercase().as_str() {
            "plaintext" => Ok(Self::Plaintext),
            "ssl" => Ok(Self::Tls(Tls { config: Arc::new(tls(properties)?) })),
            _ => Err(SecurityError::Unsupported {
                property: "security.protocol",
                value: protocol.to_owned(),
                reason: "transactions can be recovered over plaintext and ssl; SASL is not there yet",
            }),
        }
    }
}

fn tls(properties: &Properties) -> Result<ClientConfig, SecurityError> {
    for (property, reason) in UNSUPPORTED {
        if properties.get(property).is_some_and(|value| !value.is_empty()) {
            return Err(SecurityError::Unsupported { property, value: "…".to_owned(), reason });
        }
    }
    if properties.get("enable.ssl.certificate.verification").is_some_and(|value| value != "true") {
        return Err(SecurityError::Unsupported {
            property: "enable.ssl.certificate.verification",
            value: "false".to_owned(),
            reason: "the certificate is always verified; name its authority in ssl.ca.location",
        });
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(roots(properties)?);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(SecurityError::Tls)?;
    let builder = match verifies_name(properties)? {
        true => builder.with_root_certificates(roots),
        false => builder.dangerous().with_custom_certificate_verifier(without_name(roots, provider)?),
    };
    match own_certificate(properties)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(SecurityError::Tls),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn verifies_name(properties: &Properties) -> Result<bool, SecurityError> {
    let property = "ssl.endpoint.identification.algorithm";
    match properties.get(property).map_or("https", String::as_str) {
        "https" => Ok(true),
        "none" => Ok(false),
        value => Err(SecurityError::Unsupported {
            property,
            value: value.to_owned(),
            reason: "it is https or none",
        }),
    }
}

fn without_name(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WithoutName>, SecurityError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
    let verifier = verifier.map_err(|cause| SecurityError::Tls(rustls::Error::General(cause.to_string())))?;
    Ok(Arc::new(WithoutName(verifier)))
}

fn roots(properties: &Properties) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    match certificates(properties, "ssl.ca.location", "ssl.ca.pem")? {
        Some(authorities) => {
            for authority in authorities {
                roots.add(authority).map_err(SecurityError::Tls)?;
            }
        }
        None => {
            // Some of the machine's own may be odd; those that are not do.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn own_certificate(
    properties: &Properties,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, SecurityError> {
    let Some(chain) = certificates(properties, "ssl.certificate.location", "ssl.certificate.pem")? else {
        return Ok(None);
    };
    let property = "ssl.key.location";
    let Some(pem) = pem(properties, property, "ssl.key.pem")? else {
        let reason = "there is a certificate of our own, and no key to it".to_owned();
        return Err(SecurityError::File { property, reason });
    };
    let key = PrivateKeyDer::from_pem_slice(&pem);
    // Never the key's own bytes.
    let key =
        key.map_err(|_| SecurityError::File { property, reason: "no unencrypted key in PEM".to_owned() })?;
    Ok(Some((chain, key)))
}

fn certificates(
    properties: &Properties,
    location: &'static str,
    inline: &'static str,
) -> Result<Option<Vec<CertificateDer<'static>>>, SecurityError> {
    let Some(pem) = pem(properties, location, inline)? else { return Ok(None) };
    let bad = |reason: String| SecurityError::File { property: location, reason };
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match read {
        Ok(read) if read.is_empty() => Err(bad("no certificate in PEM".to_owned())),
        Ok(read) => Ok(Some(read)),
        Err(cause) => Err(bad(format!("no certificates in PEM: {cause}"))),
    }
}

fn pem(
    properties: &Properties,
    location: &'static str,
    inline: &'static str,
) -> Result<Option<Vec<u8>>, SecurityError> {
    if let Some(text) = properties.get(inline) {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let Some(path) = properties.get(location) else { return Ok(None) };
    let read = std::fs::read(path);
    read.map(Some)
        .map_err(|cause| SecurityError::File { property: location, reason: format!("{path}: {cause}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(properties: &[(&str, &str)]) -> String {
        let properties =
            properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Security::from_properties(&properties).expect_err("it cannot be obeyed").to_string()
    }

    /// [KSK-19] [KSK-21] what this client cannot do is refused by name.
    #[test]
    fn properties_that_cannot_be_obeyed_are_refused_by_name() {
        assert!(refused(&[("security.protocol", "sasl_ssl")]).contains("SASL is not there yet"));
        let tls = |name, value| refused(&[("security.protocol", "ssl"), (name, value)]);
        assert!(tls("ssl.ca.location", "/no/such/file").starts_with("ssl.ca.location: /no/such/file"));
        assert!(tls("ssl.ca.pem", "nothing").contains("no certificate in PEM"));
        assert!(tls("ssl.endpoint.identification.algorithm", "htps").contains("https or none"));
        assert!(tls("enable.ssl.certificate.verification", "false").contains("always verified"));
        let text = tls("ssl.key.password", "a secret");
        assert!(text.contains("ssl.key.password") && !text.contains("a secret"), "{text}");
    }

    #[test]
    fn brokers_are_spoken_to_in_the_clear_by_default() {
        assert!(matches!(Security::from_properties(&Properties::new()), Ok(Security::Plaintext)));
    }
}
