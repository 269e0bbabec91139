//! TLS with brokers, by the properties that librdkafka has.

use levada_kafka::protocol::{ConfigError, ProtocolClient, ProtocolConfig, ProtocolError};
use levada_testcontainers::{Cut, Kafka, Mechanism, Security};
use tokio::net::{TcpListener, TcpStream};

use super::support::{PATIENCE, chain};

type Properties = Vec<(String, String)>;

fn with(properties: &Properties, name: &str, value: &str) -> Properties {
    let mut changed = without(properties, &[name]);
    changed.push((name.to_owned(), value.to_owned()));
    changed
}

fn without(properties: &Properties, names: &[&str]) -> Properties {
    properties.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect()
}

fn client(properties: &Properties) -> ProtocolClient {
    let config = ProtocolConfig::from_properties(properties.clone()).expect("a configuration");
    ProtocolClient::new(config).expect("a client")
}

/// The error of a client that is not let in, or does not go in; without being tried again.
async fn refusal(properties: &Properties) -> ProtocolError {
    let started = std::time::Instant::now();
    let error = client(properties).check_brokers(PATIENCE).await.expect_err("no way in");
    assert!(started.elapsed() < PATIENCE / 2, "it was tried again: {error:?}");
    error
}

/// Passes on whatever comes at an address that is in no certificate.
async fn elsewhere(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.2:0").await.expect("listen");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let mut broker = TcpStream::connect(to).await.expect("the broker");
                tokio::io::copy_bidirectional(&mut client, &mut broker).await.ok();
            });
        }
    });
    address
}

/// [KSK-21]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_are_reached_over_tls_and_only_with_the_right_certificates() {
    let kafka = Kafka::builder().secured().start().expect("a broker");
    let right = kafka.client_properties(Security::Tls).expect("TLS");
    let cluster = client(&right).check_brokers(PATIENCE).await.expect("mutual TLS");
    assert_eq!(cluster.brokers.len(), 1);

    // What a broker sends behind the handshake does not make an idle connection look like one that has ended.
    let (_, broker) = right.iter().find(|(name, _)| name == "bootstrap.servers").expect("an address");
    let cut = Cut::to(broker).expect("a proxy");
    let counted = client(&with(&right, "bootstrap.servers", cut.address()));
    for _ in 0..5 {
        counted.cluster(&[], PATIENCE).await.expect("the cluster");
    }
    assert_eq!(cut.accepted(), 1);

    let files = kafka.client_files().expect("files");
    // The same as texts.
    let text = |path: &std::path::Path| std::fs::read_to_string(path).expect("PEM");
    let texts = without(&right, &["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"]);
    let texts = with(&texts, "ssl.ca.pem", &text(&files.authority));
    let texts = with(&texts, "ssl.certificate.pem", &text(&files.certificate));
    let texts = with(&texts, "ssl.key.pem", &text(&files.key));
    client(&texts).check_brokers(PATIENCE).await.expect("mutual TLS");

    let somebody = files.certificate.display().to_string();
    let error = refusal(&with(&right, "ssl.ca.location", &somebody)).await;
    assert!(matches!(error, ProtocolError::Tls { .. }), "{error:?}");
    assert!(
        chain(&error).contains("ssl.ca.location") && chain(&error).contains("certificate"),
        "{}",
        chain(&error)
    );
    // Whom the system trusts, if anybody, has not signed for a test's broker.
    let of_the_system = ProtocolConfig::from_properties(without(&right, &["ssl.ca.location"]));
    match ProtocolClient::new(of_the_system.expect("a configuration")) {
        Ok(client) => {
            let error = client.check_brokers(PATIENCE).await.expect_err("no way in");
            assert!(matches!(error, ProtocolError::Tls { .. }), "{error:?}");
        }
        Err(error) => assert!(chain(&error).contains("the system trusts nobody"), "{error:?}"),
    }
    let nameless = without(&right, &["ssl.certificate.location", "ssl.key.location"]);
    let error = refusal(&nameless).await;
    assert!(matches!(error, ProtocolError::Tls { .. }), "{error:?}");
    assert!(chain(&error).contains("the client's certificate"), "{}", chain(&error));
}

/// [KSK-21] `ssl.endpoint.identification.algorithm`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_must_name_the_host_unless_told_otherwise() {
    let kafka = Kafka::builder().secured().start().expect("a broker");
    let right = kafka.client_properties(Security::Tls).expect("TLS");
    let (_, broker) = right.iter().find(|(name, _)| name == "bootstrap.servers").expect("an address");
    let moved = with(&right, "bootstrap.servers", &elsewhere(broker.clone()).await);
    let error = refusal(&moved).await;
    assert!(matches!(error, ProtocolError::Tls { .. }), "{error:?}");
    assert!(chain(&error).contains("127.0.0.2"), "{}", chain(&error));
    let unnamed = with(&moved, "ssl.endpoint.identification.algorithm", "none");
    client(&unnamed).check_brokers(PATIENCE).await.expect("any name");
    // Any name, and not anybody.
    let somebody = kafka.client_files().expect("files").certificate.display().to_string();
    let error = refusal(&with(&unnamed, "ssl.ca.location", &somebody)).await;
    assert!(matches!(error, ProtocolError::Tls { .. }), "{error:?}");
}

/// [KSK-21] the wrong protocol at the right port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plaintext_and_tls_that_meet_are_told_apart() {
    let kafka = Kafka::builder().secured().start().expect("a broker");
    let tls = kafka.client_properties(Security::Tls).expect("TLS");
    let plain = with(&tls, "security.protocol", "PLAINTEXT");
    // The broker may also just hang up.
    let error = client(&plain).check_brokers(std::time::Duration::from_secs(5)).await.expect_err("no way in");
    let told = chain(&error);
    assert!(told.contains("it speaks TLS") || told.contains("broke during ApiVersions"), "{told}");
    let crossed = with(&tls, "bootstrap.servers", kafka.bootstrap());
    let error =
        client(&crossed).check_brokers(std::time::Duration::from_secs(5)).await.expect_err("no way in");
    let told = chain(&error);
    assert!(told.contains("TLS") || told.contains("cannot connect"), "{told}");
}

/// [KSK-21] what is not there yet is refused by its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn security_that_is_not_supported_is_refused_by_name() {
    let kafka = Kafka::builder().secured().start().expect("a broker");
    for security in [Security::Sasl(Mechanism::Plain), Security::SaslTls(Mechanism::ScramSha256)] {
        let properties = kafka.client_properties(security).expect("SASL");
        let error = ProtocolConfig::from_properties(properties).expect_err("not yet");
        assert!(error.to_string().contains("security.protocol = sasl_"), "{error}");
        assert!(!error.to_string().contains("levada-secret"), "{error}");
    }
    let tls = kafka.client_properties(Security::Tls).expect("TLS");
    for (name, value) in [
        ("ssl.key.password", "secret"),
        ("ssl.keystore.location", "/keys.p12"),
        ("enable.ssl.certificate.verification", "false"),
        ("ssl.cipher.suites", "ALL"),
        ("ssl.crl.location", "/crl.pem"),
        ("ssl.endpoint.identification.algorithm", "maybe"),
    ] {
        let error = ProtocolConfig::from_properties(with(&tls, name, value)).expect_err(name);
        assert!(matches!(&error, ConfigError::Unsupported { property, .. } if property == name), "{error:?}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let half = ProtocolConfig::from_properties(without(&tls, &["ssl.key.location"])).expect_err("no key");
    assert!(half.to_string().contains("ssl.key.location"), "{half}");
    let wrong = with(&tls, "ssl.ca.location", "/no/such/file.pem");
    let wrong = ProtocolConfig::from_properties(wrong).expect("a configuration");
    let error = ProtocolClient::new(wrong).expect_err("no file");
    assert!(
        chain(&error).contains("ssl.ca.location") && chain(&error).contains("/no/such/file.pem"),
        "{error}"
    );
    // Certificate and key the wrong way round.
    let files = kafka.client_files().expect("files");
    let crossed = with(&tls, "ssl.key.location", &files.certificate.display().to_string());
    let crossed = ProtocolConfig::from_properties(crossed).expect("a configuration");
    let error = ProtocolClient::new(crossed).expect_err("no key");
    assert!(chain(&error).contains("no unencrypted private key"), "{}", chain(&error));
}
