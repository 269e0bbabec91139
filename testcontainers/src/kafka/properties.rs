//! The broker's `server.properties`.

use std::collections::BTreeMap;
use std::path::Path;

use super::listeners::Listener;
use super::node::Node;
use super::security::Secrets;

/// Properties that make a small cluster complete and its answers quick.
const FOR_TESTS: &[(&str, &str)] = &[
    // Few partitions of the internal topics, because each costs files and time.
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("share.coordinator.state.topic.num.partitions", "4"),
    // A misspelt topic is an error, not a new topic.
    ("auto.create.topics.enable", "false"),
    // Groups form at once, and a dead member is noticed within the patience of a test.
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "500"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    // A killed broker may register again only when the session of its earlier life has expired: 9 s by default.
    ("broker.session.timeout.ms", "2000"),
    ("broker.heartbeat.interval.ms", "500"),
    // The age of a record decides nothing: tests write records of any time.
    ("log.retention.ms", "-1"),
    ("log.message.timestamp.after.max.ms", "9223372036854775807"),
    // A data folder on a small disk.
    ("log.cleaner.dedupe.buffer.size", "16777216"),
];

/// Every topic is on every broker, up to three; what is acknowledged by all is on all but one of them at least.
const REPLICATION: [&str; 4] = [
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
];
const IN_SYNC: [&str; 3] =
    ["min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr"];

/// Returns the text of the file of one node of a cluster; `chosen` replaces the defaults, and our own addresses and folders
/// replace everything.
pub(super) fn text(
    chosen: &BTreeMap<String, String>,
    node: &Node,
    voters: &[String],
    data: &Path,
    secrets: Option<&Secrets>,
) -> String {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut properties: BTreeMap<String, String> = FOR_TESTS.iter().map(own).collect();
    let replicas = voters.len().min(3);
    properties.extend(REPLICATION.map(|name| (name.to_owned(), replicas.to_string())));
    properties.extend(IN_SYNC.map(|name| (name.to_owned(), replicas.saturating_sub(1).max(1).to_string())));
    properties.extend(chosen.clone());
    properties.extend(secrets.map(Secrets::properties).unwrap_or_default());
    properties.extend(addresses(node, voters).map(|(name, value)| (name.to_owned(), value)));
    properties.insert("log.dirs".to_owned(), data.display().to_string());
    properties.iter().map(|(name, value)| format!("{name}={}\n", escape(value))).collect()
}

fn addresses(node: &Node, voters: &[String]) -> [(&'static str, String); 8] {
    let controller = format!("CONTROLLER://127.0.0.1:{}", node.controller.number());
    let mut listeners = vec![controller];
    let mut advertised = Vec::new();
    let mut protocols = vec!["CONTROLLER:PLAINTEXT".to_owned()];
    for opening in &node.openings {
        let name = opening.listener.name();
        listeners.push(format!("{name}://127.0.0.1:{}", opening.port.number()));
        advertised.push(format!("{name}://127.0.0.1:{}", opening.advertised));
        protocols.push(format!("{name}:{}", opening.listener.protocol()));
    }
    [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", node.id.to_string()),
        ("controller.quorum.voters", voters.join(",")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("inter.broker.listener.name", Listener::Plaintext.name().to_owned()),
        ("listeners", listeners.join(",")),
        ("advertised.listeners", advertised.join(",")),
        ("listener.security.protocol.map", protocols.join(",")),
    ]
}

/// Escapes what the format of Java's properties gives a meaning: backslashes and line ends.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::super::listeners::Listener;
    use super::super::node::Node;
    use super::text;

    fn lines(chosen: &[(&str, &str)], brokers: usize) -> (Node, Vec<String>) {
        let chosen: BTreeMap<String, String> =
            chosen.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let node = Node::reserve(1, &[Listener::Plaintext]).unwrap();
        let voters: Vec<String> = (1..=brokers).map(|id| format!("{id}@127.0.0.1:1")).collect();
        let text = text(&chosen, &node, &voters, Path::new("/tmp/x"), None);
        (node, text.lines().map(str::to_owned).collect())
    }

    /// [TST-01]
    #[test]
    fn chosen_properties_replace_defaults_but_not_addresses() {
        let chosen =
            [("group.min.session.timeout.ms", "6000"), ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092")];
        let (node, lines) = lines(&chosen, 1);
        assert!(lines.contains(&"group.min.session.timeout.ms=6000".to_owned()), "{lines:?}");
        let advertised =
            format!("advertised.listeners=PLAINTEXT://{}", node.address(Listener::Plaintext).unwrap());
        assert!(lines.contains(&advertised), "{lines:?}");
    }

    /// [TST-04] A crash loop restarts often: a broker must not wait for the session of its earlier life, 9 s by default.
    #[test]
    fn a_killed_broker_may_register_again_soon() {
        let (_, lines) = lines(&[], 1);
        assert!(lines.contains(&"broker.session.timeout.ms=2000".to_owned()), "{lines:?}");
    }

    /// [TST-01] What three brokers acknowledge survives one of them.
    #[test]
    fn a_cluster_keeps_every_record_on_at_least_two_brokers() {
        for (brokers, replicas, in_sync) in [(1, 1, 1), (3, 3, 2)] {
            let (_, lines) = lines(&[], brokers);
            for expected in [
                format!("default.replication.factor={replicas}"),
                format!("transaction.state.log.replication.factor={replicas}"),
                format!("min.insync.replicas={in_sync}"),
            ] {
                assert!(lines.contains(&expected), "{expected}: {lines:?}");
            }
        }
    }
}
