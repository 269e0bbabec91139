//! Listeners with TLS and SASL.

mod clients;

use clients::kafka::{PATIENCE, acknowledged, consumed, create_topic, refusal, with};
use levada_testcontainers::{Error, Kafka, Mechanism, Security, unique_name};
use rdkafka::types::RDKafkaErrorCode;

const ALL: [Security; 8] = [
    Security::Plaintext,
    Security::Tls,
    Security::Sasl(Mechanism::Plain),
    Security::Sasl(Mechanism::ScramSha256),
    Security::Sasl(Mechanism::ScramSha512),
    Security::SaslTls(Mechanism::Plain),
    Security::SaslTls(Mechanism::ScramSha256),
    Security::SaslTls(Mechanism::ScramSha512),
];

/// [TST-01] Each way in works with what the handle gives, and not without it.
#[test]
fn every_listener_lets_in_whom_it_should_and_nobody_else() {
    let kafka = Kafka::builder().secured().start().unwrap();
    for security in ALL {
        let properties = kafka.client_properties(security).unwrap();
        let topic = unique_name("secured");
        create_topic(&properties, &topic, &[1], &[]);
        let sent = acknowledged(&properties, &topic, ["a".to_owned()], PATIENCE);
        assert_eq!(sent, ["a"], "{security:?}");
        assert_eq!(consumed(&properties, &topic), ["a"], "{security:?}");
    }

    for security in [
        Security::Sasl(Mechanism::Plain),
        Security::Sasl(Mechanism::ScramSha256),
        Security::SaslTls(Mechanism::ScramSha512),
    ] {
        let wrong = with(kafka.client_properties(security).unwrap(), "sasl.password", "wrong");
        assert_eq!(refusal(&wrong), RDKafkaErrorCode::Authentication, "{security:?}");
    }
    let mut nameless = kafka.client_properties(Security::Tls).unwrap();
    nameless.retain(|(name, _)| !["ssl.certificate.location", "ssl.key.location"].contains(&name.as_str()));
    // With TLS 1.3 a client learns only by the end of the connection that a certificate was asked for.
    assert_eq!(refusal(&nameless), RDKafkaErrorCode::BrokerTransportFailure);
    // A client that trusts somebody, but not the authority that signed the server's certificate.
    let somebody = kafka.client_files().unwrap().certificate.display().to_string();
    let doubtful = with(kafka.client_properties(Security::Tls).unwrap(), "ssl.ca.location", &somebody);
    assert_eq!(refusal(&doubtful), RDKafkaErrorCode::SSL);
}

/// [TST-01]
#[test]
fn a_plain_cluster_has_no_secured_listener() {
    let kafka = Kafka::start().unwrap();
    kafka.client_properties(Security::Plaintext).unwrap();
    for security in ALL.into_iter().skip(1) {
        assert!(matches!(kafka.client_properties(security), Err(Error::Refused { .. })), "{security:?}");
    }
}
