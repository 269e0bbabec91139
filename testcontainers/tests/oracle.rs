//! The oracles over a real topic and a real table, each of them made to complain too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_testcontainers::oracle::{
    self, Isolation, Key, OpenEnd, Order, Payload, ReadError, Record, TableError, Timestamp, TopicReader,
};
use levada_testcontainers::{Kafka, Postgres, unique_name, wait_until};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(30);

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    config(bootstrap).create().unwrap()
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

async fn create_topic(bootstrap: &str, prefix: &str, partitions: i32, settings: &[(&str, &str)]) -> String {
    let topic = unique_name(prefix);
    let mut new = NewTopic::new(&topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        new = new.set(name, value);
    }
    let created = admin(bootstrap).create_topics([&new], &AdminOptions::new()).await.unwrap();
    created.into_iter().for_each(|result| drop(result.unwrap()));
    topic
}

fn producer(bootstrap: &str) -> BaseProducer {
    config(bootstrap).set("acks", "all").create().unwrap()
}

fn transactional_producer(bootstrap: &str) -> BaseProducer {
    let producer: BaseProducer =
        config(bootstrap).set("transactional.id", unique_name("oracle")).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer
}

/// Sends each value to the partition, and waits until all are written.
fn send(producer: &BaseProducer, topic: &str, partition: i32, values: &[&str]) {
    for value in values {
        producer
            .send(BaseRecord::<(), str>::to(topic).partition(partition).payload(value).timestamp(7))
            .unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

fn values(texts: &[&str]) -> Vec<Option<Payload>> {
    texts.iter().map(|text| Some(Payload::from(*text))).collect()
}

fn shown(records: &[&Record]) -> Vec<(i32, i64, String)> {
    let value = |record: &Record| record.value.as_ref().map(Payload::to_string).unwrap_or_default();
    records.iter().map(|record| (record.partition, record.offset, value(record))).collect()
}

/// [TST-10] Keys and values that look like separators, line ends, null or Kafka's own escapes.
#[tokio::test]
async fn no_record_is_misread() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "misread.me", 3, &[]).await;
    let payloads: [Option<&[u8]>; 9] = [
        None,
        Some(b""),
        Some(b"null"),
        Some(b"a\tb\nc\r\nd\0"),
        Some(b"\\x41"),
        Some(b"CreateTime:1\tPartition:0\tOffset:0\tk\tv"),
        Some("ünïcode \u{2028}".as_bytes()),
        Some(b"\xff\xfe"),
        Some(b" , \"quoted\" "),
    ];
    let producer = producer(kafka.bootstrap());
    for (place, value) in payloads.iter().enumerate() {
        let key = payloads[payloads.len() - 1 - place];
        // Partition 1 stays empty.
        let mut record =
            BaseRecord::<[u8], [u8]>::to(&topic).partition(place as i32 % 2 * 2).timestamp(place as i64 + 1);
        record.key = key;
        record.payload = *value;
        producer.send(record).unwrap();
    }
    producer.flush(PATIENCE).unwrap();

    let contents = oracle::topic(kafka.bootstrap(), &topic).unwrap();
    assert_eq!(contents.committed, contents.uncommitted);
    assert_eq!(contents.ends.values().copied().collect::<Vec<_>>(), [5, 0, 4]);
    let mut found = contents.committed.clone();
    found.sort_by_key(|record| record.offset * 2 + i64::from(record.partition) / 2);
    assert_eq!(found.len(), payloads.len(), "{contents}");
    for (place, record) in found.iter().enumerate() {
        assert_eq!(record.timestamp, Timestamp::Create(place as i64 + 1));
        assert_eq!((record.partition, record.offset), (place as i32 % 2 * 2, place as i64 / 2));
        let key = payloads[payloads.len() - 1 - place];
        assert_eq!(record.key.as_ref().map(Payload::bytes), key, "{record}");
        assert_eq!(record.value.as_ref().map(Payload::bytes), payloads[place], "{record}");
    }
}

/// [TST-10] Partition 1 ends with a marker, 2 with an aborted record and its marker, 3 holds nothing else.
#[tokio::test]
async fn aborted_records_are_told_and_markers_do_not_hide_the_end() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "aborted", 5, &[]).await;
    let producer = transactional_producer(kafka.bootstrap());
    producer.begin_transaction().unwrap();
    for partition in 0..3 {
        send(&producer, &topic, partition, &["kept", "kept too"]);
    }
    producer.commit_transaction(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    for partition in 2..4 {
        send(&producer, &topic, partition, &["aborted"]);
    }
    producer.abort_transaction(PATIENCE).unwrap();

    let contents = oracle::topic(kafka.bootstrap(), &topic).unwrap();
    assert_eq!(contents.ends.values().copied().collect::<Vec<_>>(), [3, 3, 5, 2, 0]);
    assert_eq!(contents.open, [], "{contents}");
    assert_eq!(contents.undecided(), Vec::<&Record>::new());
    let aborted = [(2, 3, "aborted".to_owned()), (3, 0, "aborted".to_owned())];
    assert_eq!(shown(&contents.aborted()), aborted, "{contents}");

    let sent = || values(&["kept", "kept too"].repeat(3));
    oracle::exactly_once(sent(), contents.committed_values()).unwrap();
    let verdict = oracle::exactly_once(sent(), contents.uncommitted_values()).unwrap_err();
    assert_eq!(verdict.unexpected().len(), 1, "{verdict}");
    assert_eq!(verdict.unexpected()[0].found, 2);
    assert!(
        contents
            .to_string()
            .contains("\npartition 3, end 2\n  aborted: 1\n    0 at 7 key null value \"aborted\"")
    );
}

/// [TST-10] What is behind an open transaction is no loss and no success: it is told.
#[tokio::test]
async fn an_open_transaction_is_told_as_the_reason_to_stop_until_it_ends() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "open", 3, &[]).await;
    let open = transactional_producer(kafka.bootstrap());
    let plain = producer(kafka.bootstrap());
    for partition in 0..3 {
        send(&plain, &topic, partition, &["before"]);
    }
    open.begin_transaction().unwrap();
    send(&open, &topic, 1, &["open"]);
    send(&plain, &topic, 1, &["after"]);
    send(&open, &topic, 2, &["open"]);

    let stopped = oracle::topic(kafka.bootstrap(), &topic).unwrap();
    let places: Vec<_> = stopped
        .open
        .iter()
        .map(|OpenEnd { partition, position, end, .. }| (*partition, *position, *end))
        .collect();
    assert_eq!(places, [(1, 1, 3), (2, 1, 2)], "{stopped}");
    assert!(stopped.to_string().contains("partition 1 stopped before the end: at 1 of 3"), "{stopped}");
    let undecided = [(1, 1, "open".to_owned()), (1, 2, "after".to_owned()), (2, 1, "open".to_owned())];
    assert_eq!(shown(&stopped.undecided()), undecided);
    assert!(stopped.aborted().is_empty());
    let sent = || values(&["before", "before", "before", "open", "after", "open"]);
    let verdict = oracle::exactly_once(sent(), stopped.committed_values()).unwrap_err();
    assert_eq!(verdict.missing().len(), 2, "{verdict}");

    open.commit_transaction(PATIENCE).unwrap();
    let whole = oracle::topic(kafka.bootstrap(), &topic).unwrap();
    assert_eq!(whole.open, [], "{whole}");
    oracle::exactly_once(sent(), whole.committed_values()).unwrap();
}

/// [TST-10]
#[tokio::test]
async fn lost_doubled_and_swapped_records_of_a_topic_are_complained_about() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "faulty", 2, &[]).await;
    let producer = producer(kafka.bootstrap());
    send(&producer, &topic, 0, &["1", "3", "2", "3"]);
    send(&producer, &topic, 1, &["1"]);
    let contents = oracle::topic(kafka.bootstrap(), &topic).unwrap();

    let verdict =
        oracle::exactly_once(values(&["1", "1", "2", "3", "4"]), contents.committed_values()).unwrap_err();
    let message = "not exactly once: 1 missing, 1 doubled, 0 unexpected (5 sent, 5 found)\
                   \n  missing: Some(\"4\")\n  doubled: Some(\"3\") found 2 times";
    assert_eq!(verdict.to_string(), message);

    let mut order = Order::new();
    order.found(contents.committed.iter().map(|record| (record.partition, record.value.clone())));
    let disorder = order.without_repeats().unwrap_err();
    assert_eq!(disorder.swaps().len(), 1, "{disorder}");
    assert_eq!((disorder.swaps()[0].key, disorder.swaps()[0].place), (0, 2));
    assert_eq!(disorder.repeats()[0].times, 2, "{disorder}");
}

/// [TST-10] A compacted topic has holes, and one whose beginning was deleted starts late; neither has a record that tells.
/// The groups of a reading are gone afterwards.
#[tokio::test]
async fn holes_do_not_hide_the_end_and_no_group_stays() {
    let kafka = Kafka::builder().property("log.cleaner.backoff.ms", "100").start().unwrap();
    let bootstrap = kafka.bootstrap();
    let compact =
        [("cleanup.policy", "compact"), ("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.001")];
    let compacted = create_topic(bootstrap, "compacted", 1, &compact).await;
    let producer = producer(bootstrap);
    let reader: BaseConsumer =
        config(bootstrap).set("group.id", "none").set("enable.auto.commit", "false").create().unwrap();
    let mut sent = 0;
    wait_until(PATIENCE, "a hole at the beginning", || {
        let value = sent.to_string();
        producer.send(BaseRecord::to(&compacted).key("k").payload(&value)).unwrap();
        producer.flush(PATIENCE).unwrap();
        sent += 1;
        first_offset(&reader, &compacted) > 0
    })
    .unwrap();
    let contents = oracle::topic(bootstrap, &compacted).unwrap();
    assert_eq!(contents.ends[&0], sent);
    assert!(contents.committed.len() < sent as usize, "{contents}");
    assert!(contents.committed.iter().all(|record| record.value == Some(record.offset.to_string().into())));

    let deleted = create_topic(bootstrap, "deleted", 2, &[]).await;
    for partition in 0..2 {
        send(&producer, &deleted, partition, &["a", "b", "c"]);
    }
    let mut before = TopicPartitionList::new();
    before.add_partition_offset(&deleted, 0, Offset::Offset(2)).unwrap();
    before.add_partition_offset(&deleted, 1, Offset::Offset(3)).unwrap();
    admin(bootstrap).delete_records(&before, &AdminOptions::new()).await.unwrap();
    let left = oracle::topic(bootstrap, &deleted).unwrap();
    assert_eq!(shown(&left.committed.iter().collect::<Vec<_>>()), [(0, 2, "c".to_owned())], "{left}");

    let groups = reader.fetch_group_list(None, PATIENCE).unwrap();
    let names: Vec<&str> = groups.groups().iter().map(|group| group.name()).collect();
    assert_eq!(names, Vec::<&str>::new());
}

/// The offset of the first record that is still there.
fn first_offset(reader: &BaseConsumer, topic: &str) -> i64 {
    let mut beginning = TopicPartitionList::new();
    beginning.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    reader.assign(&beginning).unwrap();
    loop {
        if let Some(Ok(message)) = reader.poll(PATIENCE) {
            return rdkafka::Message::offset(&message);
        }
    }
}

/// [TST-10] The reading ends at what was written when it started, although the writer does not end.
#[tokio::test]
async fn a_topic_that_is_written_to_is_read_to_its_end_of_before() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "busy", 1, &[]).await;
    let producer = producer(kafka.bootstrap());
    send(&producer, &topic, 0, &["first"]);
    let stop = AtomicBool::new(false);
    let contents = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                send(&producer, &topic, 0, &["more"]);
            }
        });
        let contents = oracle::topic(kafka.bootstrap(), &topic);
        stop.store(true, Ordering::Relaxed);
        contents.unwrap()
    });
    let offsets: Vec<i64> = contents.committed.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (0..contents.ends[&0]).collect::<Vec<_>>());
    assert_eq!(contents.committed, contents.uncommitted);
}

/// [TST-10]
#[tokio::test]
async fn a_topic_that_cannot_be_read_is_an_error_and_not_an_empty_topic() {
    let kafka = Kafka::shared().unwrap();
    let missing = unique_name("missing");
    let error = oracle::topic(kafka.bootstrap(), &missing).unwrap_err();
    assert!(matches!(error, ReadError::Tool { .. }), "{error}");
    assert!(error.to_string().contains(&missing), "{error}");

    let topic = create_topic(kafka.bootstrap(), "unread", 1, &[]).await;
    send(&producer(kafka.bootstrap()), &topic, 0, &["a", "b"]);
    let error = TopicReader::new(kafka.bootstrap()).patience(Duration::ZERO).read(&topic).unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::EndNotReached { isolation: Isolation::Committed, position: None, end: 2, .. }
        ),
        "{error}"
    );
}

/// [TST-10]
#[tokio::test]
async fn the_client_s_properties_reach_the_tools() {
    let kafka = Kafka::shared().unwrap();
    let topic = create_topic(kafka.bootstrap(), "secured", 1, &[]).await;
    send(&producer(kafka.bootstrap()), &topic, 0, &["a"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.properties");
    let reader = TopicReader::new(kafka.bootstrap()).client_properties(&file);

    std::fs::write(&file, "security.protocol=NO_SUCH_PROTOCOL\n").unwrap();
    let error = reader.read(&topic).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("NO_SUCH_PROTOCOL"), "{cause}");
    // Neither of these two may take effect: the reading would not know its end.
    std::fs::write(
        &file,
        "security.protocol=PLAINTEXT\nenable.auto.commit=false\nisolation.level=read_committed\n",
    )
    .unwrap();
    assert_eq!(reader.read(&topic).unwrap().committed.len(), 1);
}

/// [TST-10]
#[test]
fn keys_of_a_table_are_counted_whatever_their_names_and_values() {
    let database = Postgres::database().unwrap();
    database
        .psql(
            r#"CREATE SCHEMA "Odd ""one""";
            CREATE TABLE "Odd ""one"""."T.x" ("Kind" text, "key_of" numeric, note text);
            INSERT INTO "Odd ""one"""."T.x" VALUES
            ('a|b', 1.0, 'x'), ('a|b', 1.00, 'x'), (NULL, 2, 'x'), ('', 2, 'x'), ('NULL', 2, 'x'), ('-', NULL, 'x'),
            (E'new\nline', 3, 'x'), (E'new\nline', 3, 'y')"#,
        )
        .unwrap();
    let counts = oracle::table(&database, &[r#"Odd "one""#, "T.x"], &["Kind", "key_of"]).unwrap();
    let sent = [
        [Some("a|b"), Some("1.0")],
        [Some("a|b"), Some("1.00")],
        [None, Some("2")],
        [Some(""), Some("2")],
        [Some("NULL"), Some("2")],
        [Some("-"), None],
        [Some("new\nline"), Some("3")],
        [Some("new\nline"), Some("3")],
    ];
    counts.exactly_once(sent.map(Key::from)).unwrap();
    assert_eq!((counts.rows(), counts.by_key().len()), (8, 7));
}

/// [TST-10]
#[test]
fn lost_and_doubled_rows_of_a_table_are_complained_about() {
    let database = Postgres::database().unwrap();
    database
        .psql("CREATE TABLE rows (id bigint); INSERT INTO rows VALUES (1), (1), (2), (9), (NULL)")
        .unwrap();
    let counts = oracle::table(&database, &["rows"], &["id"]).unwrap();
    let verdict = counts.exactly_once((1..=3).map(Key::from)).unwrap_err();
    let message = "not exactly once: 1 missing, 1 doubled, 2 unexpected (3 sent, 5 found)\
                   \n  missing: (\"3\")\n  doubled: (\"1\") found 2 times\n  unexpected: (NULL); (\"9\")";
    assert_eq!(verdict.to_string(), message);
    counts.at_least_once([Key::from(1), Key::from(2), Key::from(9), Key::from([None])]).unwrap();
}

/// [TST-10]
#[test]
fn a_table_that_cannot_be_read_is_an_error_and_not_an_empty_table() {
    let database = Postgres::database().unwrap();
    let error = oracle::table(&database, &["missing"], &["id"]).unwrap_err();
    assert!(matches!(error, TableError::Query { .. }), "{error}");
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("does not exist"));
    assert!(matches!(oracle::table(&database, &["missing"], &[]), Err(TableError::Unnamed)));

    database.psql("CREATE TABLE empty (id int)").unwrap();
    assert_eq!(oracle::table(&database, &["empty"], &["id"]).unwrap().rows(), 0);
    let databases = oracle::table(database.server(), &["pg_catalog", "pg_database"], &["datname"]).unwrap();
    assert_eq!(databases.by_key()[&Key::from(database.name())], 1, "the server itself answers too");
}
