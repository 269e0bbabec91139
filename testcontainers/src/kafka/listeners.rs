//! The ways into a broker, and what a client must set for each.

use super::security::{PASSWORD, USER};

/// How a client speaks to the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Security {
    /// In the clear.
    Plaintext,
    /// Encrypted; the client shows a certificate.
    Tls,
    /// In the clear, with user and password.
    Sasl(Mechanism),
    /// Encrypted, with user and password.
    SaslTls(Mechanism),
}

/// How user and password are shown to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mechanism {
    /// As they are (RFC 4616).
    Plain,
    /// By proof that one knows them (RFC 5802), with SHA-256.
    ScramSha256,
    /// The same with SHA-512.
    ScramSha512,
}

impl Mechanism {
    /// Returns the name that clients and brokers use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// A listener of a broker. Each has a port of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// Between brokers, and for most tests.
    Plaintext,
    /// In the clear; what it advertises is a [`Cut`](crate::Cut).
    Cut,
    Tls,
    Sasl,
    SaslTls,
}

impl Listener {
    pub(super) const SECURED: [Listener; 3] = [Listener::Tls, Listener::Sasl, Listener::SaslTls];

    /// The name in the broker's properties.
    pub(super) fn name(self) -> &'static str {
        match self {
            Listener::Plaintext => "PLAINTEXT",
            Listener::Cut => "CUT",
            Listener::Tls => "TLS",
            Listener::Sasl => "SASL",
            Listener::SaslTls => "SASL_TLS",
        }
    }

    /// What is spoken there, in Kafka's words; clients set it as `security.protocol`.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Listener::Plaintext | Listener::Cut => "PLAINTEXT",
            Listener::Tls => "SSL",
            Listener::Sasl => "SASL_PLAINTEXT",
            Listener::SaslTls => "SASL_SSL",
        }
    }
}

impl Security {
    pub(super) fn listener(self) -> Listener {
        match self {
            Security::Plaintext => Listener::Plaintext,
            Security::Tls => Listener::Tls,
            Security::Sasl(_) => Listener::Sasl,
            Security::SaslTls(_) => Listener::SaslTls,
        }
    }

    /// Returns the properties about user and password.
    pub(super) fn credentials(self) -> Vec<(&'static str, String)> {
        match self {
            Security::Sasl(mechanism) | Security::SaslTls(mechanism) => vec![
                ("sasl.mechanism", mechanism.name().to_owned()),
                ("sasl.username", USER.to_owned()),
                ("sasl.password", PASSWORD.to_owned()),
            ],
            Security::Plaintext | Security::Tls => Vec::new(),
        }
    }
}
