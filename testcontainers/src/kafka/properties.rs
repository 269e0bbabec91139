//! The broker's `server.properties`.

use std::collections::BTreeMap;
use std::path::Path;

/// Properties that make a single broker complete and its answers quick.
const FOR_TESTS: &[(&str, &str)] = &[
    // There is one broker, so every internal topic has one replica; few partitions, because each costs files and time.
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("share.coordinator.state.topic.num.partitions", "4"),
    ("min.insync.replicas", "1"),
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

/// Returns the text of the file; `chosen` replaces the defaults, and our own addresses and folders replace everything.
pub(super) fn text(chosen: &BTreeMap<String, String>, broker: u16, controller: u16, data: &Path) -> String {
    let mut properties: BTreeMap<&str, String> =
        FOR_TESTS.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    properties.extend(chosen.iter().map(|(name, value)| (name.as_str(), value.clone())));
    properties.extend([
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", "1".to_owned()),
        ("controller.quorum.voters", format!("1@127.0.0.1:{controller}")),
        ("listeners", format!("PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}")),
        ("advertised.listeners", format!("PLAINTEXT://127.0.0.1:{broker}")),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("inter.broker.listener.name", "PLAINTEXT".to_owned()),
        ("log.dirs", data.display().to_string()),
    ]);
    properties.iter().map(|(name, value)| format!("{name}={}\n", escape(value))).collect()
}

/// Escapes what the format of Java's properties gives a meaning: backslashes and line ends.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::text;

    /// [TST-01]
    #[test]
    fn chosen_properties_replace_defaults_but_not_addresses() {
        let chosen = BTreeMap::from([
            ("group.min.session.timeout.ms".to_owned(), "6000".to_owned()),
            ("listeners".to_owned(), "PLAINTEXT://0.0.0.0:9092".to_owned()),
        ]);
        let text = text(&chosen, 20_001, 20_002, Path::new("/tmp/x"));
        assert!(text.contains("group.min.session.timeout.ms=6000\n"), "{text}");
        assert!(
            text.contains("listeners=PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002\n"),
            "{text}"
        );
    }
}
