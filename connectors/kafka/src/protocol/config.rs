//! How brokers are reached: the client's properties, by the names that librdkafka gives them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use levada_core::BoxError;

use super::address::Address;

/// What the client of the protocol is told.
#[derive(Debug, Clone)]
pub struct ProtocolConfig {
    pub(super) bootstrap: Vec<Address>,
    pub(super) client_id: String,
    /// `None` in the clear.
    pub(super) tls: Option<TlsProperties>,
    pub(super) patience: Duration,
}

/// What is said about certificates.
#[derive(Clone, Default)]
pub(super) struct TlsProperties {
    /// Whose signature on a broker's certificate counts; that of whom the system trusts unless given.
    pub(super) authorities: Option<Pem>,
    /// The client's own chain and key.
    pub(super) own: Option<(Pem, Pem)>,
    /// Whether the certificate must name the host that was connected to.
    pub(super) names_are_checked: bool,
}

/// Where PEM stands.
#[derive(Clone)]
pub(super) enum Pem {
    /// In a file, by the property that names it.
    File(&'static str, PathBuf),
    /// In the property itself.
    Text(&'static str, String),
}

// A key may be among them.
impl std::fmt::Debug for TlsProperties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("TlsProperties");
        shown.field("has_authorities", &self.authorities.is_some()).field("is_mutual", &self.own.is_some());
        shown.field("names_are_checked", &self.names_are_checked).finish()
    }
}

/// Why this client cannot speak to brokers in the way that the properties say. Never shows a property's value that may be
/// a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `bootstrap.servers` is missing or empty.
    #[error("bootstrap.servers names no broker")]
    NoBootstrap,
    /// Part of `bootstrap.servers` is no address.
    #[error("{address:?} in bootstrap.servers is no host:port")]
    Address {
        /// The part.
        address: String,
    },
    /// A property, or its value, that this client has no means for.
    #[error(
        "{property}{} is not supported where transactions are recovered: {instead}",
        .value.as_ref().map_or_else(String::new, |value| format!(" = {value}"))
    )]
    Unsupported {
        /// The property.
        property: String,
        /// Its value, where that is a word of the protocol's.
        value: Option<String>,
        /// What can be done.
        instead: &'static str,
    },
    /// One of two properties that belong together.
    #[error("{given} is given without {missing}")]
    Incomplete {
        /// The one.
        given: &'static str,
        /// The other.
        missing: &'static str,
    },
    /// What a property names cannot be used.
    #[error("{property} cannot be used")]
    Unusable {
        /// The property.
        property: &'static str,
        /// Why.
        #[source]
        cause: BoxError,
    },
}

/// Properties about TLS that are understood; an encrypted connection with another one is refused.
const UNDERSTOOD: [&str; 7] = [
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.endpoint.identification.algorithm",
];

impl ProtocolConfig {
    /// Takes what the client of the records is configured with, by the same names; properties that concern records alone
    /// are passed over. Of a name that comes twice, the last counts.
    ///
    /// # Errors
    /// [`ConfigError`], for whatever librdkafka could do about security and this client cannot: nothing is let go in silence.
    pub fn from_properties<N: Into<String>, V: Into<String>>(
        properties: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigError> {
        let properties: BTreeMap<String, String> =
            properties.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let get = |name: &str| properties.get(name).map(String::as_str);
        let servers = get("bootstrap.servers").or_else(|| get("metadata.broker.list"));
        let protocol = get("security.protocol").unwrap_or("plaintext").to_lowercase();
        let tls = match protocol.as_str() {
            "plaintext" => None,
            "ssl" => Some(TlsProperties::read(&properties)?),
            _ => return Err(unsupported("security.protocol", Some(&protocol), "use plaintext or ssl")),
        };
        Ok(Self {
            bootstrap: Address::read_all(servers.unwrap_or_default())?,
            client_id: get("client.id").unwrap_or("levada").to_owned(),
            tls,
            patience: Duration::from_secs(10),
        })
    }

    /// Sets how long one broker may take to be connected to, and for one answer: 10 s unless set. A call as a whole has a
    /// deadline of its own, within which it may ask several times and several brokers.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

impl TlsProperties {
    fn read(properties: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let given = |name: &'static str| properties.get(name).filter(|value| !value.is_empty());
        let pem = |location: &'static str, text: &'static str| match (given(location), given(text)) {
            // librdkafka reads this as "where the system keeps them".
            (Some(path), None) if location == "ssl.ca.location" && path == "probe" => None,
            (Some(path), _) => Some(Pem::File(location, PathBuf::from(path))),
            (None, Some(pem)) => Some(Pem::Text(text, pem.clone())),
            (None, None) => None,
        };
        refuse_what_is_not_understood(properties)?;
        let certificate = pem("ssl.certificate.location", "ssl.certificate.pem");
        let own = match (certificate, pem("ssl.key.location", "ssl.key.pem")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(certificate), None) => {
                return Err(ConfigError::Incomplete {
                    given: certificate.property(),
                    missing: "ssl.key.location",
                });
            }
            (None, Some(key)) => {
                return Err(ConfigError::Incomplete {
                    given: key.property(),
                    missing: "ssl.certificate.location",
                });
            }
        };
        let names_are_checked = match given("ssl.endpoint.identification.algorithm").map(String::as_str) {
            None | Some("https") => true,
            Some("none") => false,
            Some(other) => {
                let name = "ssl.endpoint.identification.algorithm";
                return Err(unsupported(name, Some(other), "use https or none"));
            }
        };
        Ok(Self { authorities: pem("ssl.ca.location", "ssl.ca.pem"), own, names_are_checked })
    }
}

impl Pem {
    pub(super) fn property(&self) -> &'static str {
        match self {
            Pem::File(property, _) | Pem::Text(property, _) => property,
        }
    }
}

fn refuse_what_is_not_understood(properties: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for (name, value) in properties.iter().filter(|(_, value)| !value.is_empty()) {
        let instead = match name.as_str() {
            "enable.ssl.certificate.verification" if value == "true" => continue,
            "enable.ssl.certificate.verification" => "name the broker's authority in ssl.ca.location",
            "ssl.key.password" => "give a key that is not encrypted, in PEM",
            name if name.starts_with("ssl.keystore.") => {
                "give certificate and key in PEM, as ssl.certificate.location and ssl.key.location"
            }
            name if UNDERSTOOD.contains(&name) => continue,
            name if name.starts_with("ssl.") || name.starts_with("ssl_") => "leave it out",
            _ => continue,
        };
        return Err(unsupported(name, None, instead));
    }
    Ok(())
}

fn unsupported(property: &str, value: Option<&str>, instead: &'static str) -> ConfigError {
    ConfigError::Unsupported { property: property.to_owned(), value: value.map(str::to_owned), instead }
}
