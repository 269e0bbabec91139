//! The handle of a cluster that one test owns.

use std::process::Command;

use super::broker::Broker;
use super::listeners::{Listener, Security};
use super::security::Secrets;
use super::start::prepare;
use super::{KafkaBuilder, SharedKafka, shared, tool};
use crate::Error;
use crate::tls::ClientFiles;

/// A cluster of one's own, to be hurt at will. It ends, and its folders go, when the handle is dropped or this process ends
/// in any way.
///
/// A test that only reads and writes takes [`Kafka::shared`], which costs the start once.
///
/// Every method takes `&self`: one thread may kill a broker while another talks to it.
#[derive(Debug)]
pub struct Kafka {
    bootstrap: String,
    brokers: Vec<Broker>,
    secrets: Option<Secrets>,
}

impl Kafka {
    /// Starts one broker with the defaults for tests.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`].
    pub fn start() -> Result<Kafka, Error> {
        Kafka::builder().start()
    }

    /// Fetches the jars and archives the broker's classes, unless this machine has them already. A start does the same first.
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`].
    pub fn prepare() -> Result<(), Error> {
        prepare()
    }

    /// Chooses how a cluster starts.
    #[must_use]
    pub fn builder() -> KafkaBuilder {
        KafkaBuilder::new()
    }

    /// Returns the broker that all tests share: the one that `levada-testcontainers run` exported
    /// (`LEVADA_KAFKA_BOOTSTRAP`), else one that this process starts at the first call.
    ///
    /// Use topics, groups and transactional ids of your own ([`unique_name`](crate::unique_name)).
    ///
    /// # Errors
    ///
    /// As [`KafkaBuilder::start`]; a failed start is not tried again, every later call returns its cause.
    pub fn shared() -> Result<SharedKafka, Error> {
        shared::shared()
    }

    pub(super) fn new(brokers: Vec<Broker>, secrets: Option<Secrets>) -> Kafka {
        let bootstrap = addresses(&brokers, Listener::Plaintext);
        Kafka { bootstrap, brokers, secrets }
    }

    /// Returns the addresses for `bootstrap.servers`, in the clear; they stay the same across restarts.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Returns the addresses for `bootstrap.servers` of clients that reach the brokers through their proxies only.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use levada_testcontainers::{Action, Direction, Kafka, Trigger};
    /// let kafka = Kafka::builder().behind_cut().start()?;
    /// println!("give {} to the client", kafka.bootstrap_behind_cut()?);
    /// let cut = kafka.broker(1).cut()?;
    /// let rule = cut.when(Direction::ToServer, Trigger::after_bytes(100_000), Action::Cut);
    /// rule.wait(Duration::from_secs(10))?;
    /// # Ok::<(), levada_testcontainers::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the cluster was not started [`behind_cut`](KafkaBuilder::behind_cut).
    pub fn bootstrap_behind_cut(&self) -> Result<String, Error> {
        self.broker(1).cut()?;
        Ok(addresses(&self.brokers, Listener::Cut))
    }

    /// Returns the brokers.
    #[must_use]
    pub fn brokers(&self) -> &[Broker] {
        &self.brokers
    }

    /// Returns the broker with this number, as the cluster's metadata give it: from 1 on.
    ///
    /// # Panics
    ///
    /// Panics if the cluster has no such broker.
    #[must_use]
    pub fn broker(&self, id: usize) -> &Broker {
        match self.brokers.iter().find(|broker| broker.id() == id) {
            Some(broker) => broker,
            None => panic!("no broker {id} in a cluster of {}", self.brokers.len()),
        }
    }

    /// Returns what a client must set to be let in, addresses included, in the words of librdkafka's configuration.
    ///
    /// ```no_run
    /// # use levada_testcontainers::{Kafka, Mechanism, Security};
    /// let kafka = Kafka::builder().secured().start()?;
    /// let properties = kafka.client_properties(Security::SaslTls(Mechanism::ScramSha256))?;
    /// let config: rdkafka::ClientConfig = properties.into_iter().collect();
    /// # Ok::<(), levada_testcontainers::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the cluster was not started [`secured`](KafkaBuilder::secured) and something other than
    /// [`Security::Plaintext`] is asked for.
    pub fn client_properties(&self, security: Security) -> Result<Vec<(String, String)>, Error> {
        let listener = security.listener();
        let mut properties = vec![
            ("bootstrap.servers", addresses(&self.brokers, listener)),
            ("security.protocol", listener.protocol().to_owned()),
        ];
        properties.extend(security.credentials());
        if security != Security::Plaintext {
            properties.extend(self.trust(security)?);
        }
        Ok(properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the properties about certificates.
    fn trust(&self, security: Security) -> Result<Vec<(&'static str, String)>, Error> {
        let files = self.client_files()?;
        let mut properties = Vec::new();
        if matches!(security, Security::Tls | Security::SaslTls(_)) {
            properties.push(("ssl.ca.location", files.authority.display().to_string()));
        }
        if security == Security::Tls {
            properties.push(("ssl.certificate.location", files.certificate.display().to_string()));
            properties.push(("ssl.key.location", files.key.display().to_string()));
        }
        Ok(properties)
    }

    /// Returns the files that a TLS client needs.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the cluster was not started [`secured`](KafkaBuilder::secured).
    pub fn client_files(&self) -> Result<&ClientFiles, Error> {
        let refused = Error::Refused { what: "TLS and SASL need the builder's `secured`" };
        self.secrets.as_ref().map(Secrets::client).ok_or(refused)
    }

    /// Returns everything that the brokers have logged, one after the other.
    #[must_use]
    pub fn logs(&self) -> String {
        self.brokers.iter().map(Broker::logs).collect()
    }

    /// Creates a topic with the default settings of the brokers. It takes about a second, the start of a JVM: a test with
    /// many topics creates them with its own client.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] with the tool's words, for instance when there is such a topic.
    pub fn create_topic(&self, topic: &str, partitions: u32) -> Result<(), Error> {
        tool::create_topic(&self.bootstrap, topic, partitions)
    }

    /// Returns a command that runs a class of Kafka's jars, such as `org.apache.kafka.tools.consumer.ConsoleConsumer`, with
    /// these arguments. The start of its JVM takes about a second. Add `--bootstrap-server` yourself where it is due.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] or a failed download, as at the start of a broker.
    pub fn tool<'a>(
        &self,
        class: &str,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<Command, Error> {
        tool::tool(class, arguments)
    }
}

fn addresses(brokers: &[Broker], listener: Listener) -> String {
    let addresses: Vec<String> = brokers.iter().filter_map(|broker| broker.address_of(listener)).collect();
    addresses.join(",")
}
