//! What brokers need to serve TLS and SASL.

use std::path::Path;

use super::listeners::Mechanism;
use crate::Error;
use crate::tls::{Authority, Certified, ClientFiles};

/// The one user. Its password is no secret: the brokers listen on 127.0.0.1 and hold what tests wrote.
pub(super) const USER: &str = "levada";
pub(super) const PASSWORD: &str = "levada-secret";

/// The mechanisms whose credentials lie in the cluster's metadata, from the format on.
const SCRAM: [Mechanism; 2] = [Mechanism::ScramSha256, Mechanism::ScramSha512];

/// The certificates of a cluster.
#[derive(Debug)]
pub(super) struct Secrets {
    authority: Authority,
    server: Certified,
    client: ClientFiles,
}

impl Secrets {
    /// Makes them; the client's files go into `folder`.
    pub(super) fn new(folder: &Path) -> Result<Secrets, Error> {
        let authority = Authority::new()?;
        let server = authority.for_server()?;
        let client = ClientFiles::write(folder, &authority, USER)?;
        Ok(Secrets { authority, server, client })
    }

    pub(super) fn client(&self) -> &ClientFiles {
        &self.client
    }

    /// Returns the brokers' properties.
    pub(super) fn properties(&self) -> Vec<(String, String)> {
        let mut properties = vec![
            ("ssl.keystore.type".to_owned(), "PEM".to_owned()),
            ("ssl.keystore.certificate.chain".to_owned(), self.server.certificate.clone()),
            ("ssl.keystore.key".to_owned(), self.server.key.clone()),
            ("ssl.truststore.type".to_owned(), "PEM".to_owned()),
            ("ssl.truststore.certificates".to_owned(), self.authority.certificate().to_owned()),
            // Who shows user and password over TLS need not show a certificate too.
            ("listener.name.tls.ssl.client.auth".to_owned(), "required".to_owned()),
            ("sasl.enabled.mechanisms".to_owned(), "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned()),
        ];
        for listener in ["sasl", "sasl_tls"] {
            let login = |mechanism: &str| format!("listener.name.{listener}.{mechanism}.sasl.jaas.config");
            let plain = format!(
                "org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";"
            );
            properties.push((login("plain"), plain));
            for mechanism in SCRAM {
                let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
                properties.push((login(&mechanism.name().to_lowercase()), scram.to_owned()));
            }
        }
        properties
    }
}

/// The least that Kafka takes.
const ITERATIONS: u32 = 4096;

/// Returns what the format of a data folder is told about the user.
pub(crate) fn scram_records() -> impl Iterator<Item = String> {
    SCRAM.into_iter().map(|mechanism| {
        format!("{}=[name={USER},password={PASSWORD},iterations={ITERATIONS}]", mechanism.name())
    })
}

/// Returns what `kafka-configs` is told about the user. It takes the password for everything behind `password=`.
#[cfg(feature = "docker")]
pub(super) fn scram_configs() -> impl Iterator<Item = String> {
    SCRAM
        .into_iter()
        .map(|mechanism| format!("{}=[iterations={ITERATIONS},password={PASSWORD}]", mechanism.name()))
}
