//! `levada transactions` as a process, over a store and transactions that the Kafka sink wrote, on real brokers.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use levada_core::batch::RawRecord;
use levada_core::template::WriteContext;
use levada_core::{
    BatchBuilder, BoxError, CheckpointId, Record, SinkContext, SplitId, State, SystemClock, Timestamp,
};
use levada_engine::driver::{DriverContext, SinkDriver as _, TwoPhaseDriver, TwoPhaseOptions};
use levada_engine::store::{
    Lease, Manifest, OperatorState, PartHome, ProcessId, Store, SubtaskState, TakeOver,
};
use levada_kafka::protocol::{
    Ending, ProtocolClient, ProtocolConfig, State as TransactionState, TransactionAdmin as _, TransactionKey,
};
use levada_kafka::sink::producing::{InBatch, KafkaSinkConfig, Message, Outgoing};
use levada_kafka::sink::two_phase::TransactionalSink;
use levada_testcontainers::{Kafka, Security, oracle, unique_name};
use serde_json::Value;
use tempfile::TempDir;

const DONE: i32 = 0;
const WRONG: i32 = 2;
const REFUSED: i32 = 3;
const RUNNING: i32 = 5;
const PATIENCE: Duration = Duration::from_secs(60);

type ToTopic = Box<dyn FnMut(InBatch<'_, String>, &mut Outgoing) -> Result<(), BoxError> + Send>;
type Driver = TwoPhaseDriver<String, TransactionalSink<String, ToTopic>>;

/// A topic, whose name is the prefix of transactional ids, and a store.
struct Place {
    folder: TempDir,
    bootstrap: String,
    topic: String,
    admin: ProtocolClient,
}

/// What one attempt of a job does.
struct Attempt {
    lease: Lease,
    driver: Driver,
    sequence: u64,
}

impl Place {
    fn new() -> Self {
        let kafka = Kafka::shared().unwrap();
        let (bootstrap, topic) = (kafka.bootstrap().to_owned(), unique_name("transactions"));
        kafka.create_topic(&topic, 1).unwrap();
        let config = ProtocolConfig::from_properties([("bootstrap.servers", &bootstrap)]).unwrap();
        let (folder, admin) = (tempfile::tempdir().unwrap(), ProtocolClient::new(config).unwrap());
        Self { folder, bootstrap, topic, admin }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Begins an attempt of job `delays`, in the name of a process that has ended.
    async fn attempt(&self) -> Attempt {
        let process = ProcessId { host: "host-a".into(), host_id: "a".into(), pid: 17, started: 4711 };
        let store = Store::open(self.store().to_str().unwrap()).await.unwrap();
        let lease = store.with_process(process).take_lease("delays", TakeOver::Always).await.unwrap();
        let topic = self.topic.clone();
        let serialise: ToTopic = Box::new(move |record, out| {
            if !record.item().is_empty() {
                out.push(&Message::to(&topic).value(record.item().as_bytes()));
            }
            Ok(())
        });
        let config = KafkaSinkConfig::new(&self.bootstrap).topics([&self.topic]);
        let sink = TransactionalSink::new(config, &self.topic, "out", serialise).unwrap();
        let mut driver = TwoPhaseDriver::new(sink, TwoPhaseOptions::default());
        let sink = SinkContext { job: "delays".into(), subtask: 0, parallelism: 1 };
        let first = CheckpointId::new(lease.attempt(), 1);
        let ctx = DriverContext { sink, uid: "out".into(), first, clock: Arc::new(SystemClock) };
        driver.open(ctx, None).await.unwrap();
        Attempt { lease, driver, sequence: 0 }
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
        let mut levada = Command::new(env!("CARGO_BIN_EXE_levada"));
        levada.args(["transactions", command, self.store().to_str().unwrap()]);
        levada.args(["--prefix", &self.topic, "--bootstrap", &self.bootstrap]).args(more);
        levada.output().unwrap()
    }

    #[track_caller]
    fn printed(&self, code: i32, command: &str, more: &[&str]) -> String {
        let output = self.run(command, more);
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{out}\n{error}");
        assert_eq!(error, "");
        out
    }

    /// Runs a command that is not carried out, and returns what it complains of.
    #[track_caller]
    fn refused(&self, code: i32, command: &str, more: &[&str]) -> String {
        let output = self.run(command, more);
        let (out, error) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{out}\n{error}");
        assert_eq!(out, "");
        error
    }

    #[track_caller]
    fn listed(&self, more: &[&str]) -> Vec<Value> {
        let text = self.printed(DONE, "list", &[more, &["--json"]].concat());
        let document: Value = serde_json::from_str(&text).unwrap();
        document["transactions"].as_array().unwrap().clone()
    }

    async fn state(&self, id: &str) -> TransactionState {
        let mut told = self.admin.describe(&[id], PATIENCE).await.unwrap();
        told.remove(id).flatten().unwrap().state
    }

    /// Ends a transaction as somebody else would.
    async fn end(&self, row: &Value, ending: Ending) {
        let key = TransactionKey {
            transactional_id: row["id"].as_str().unwrap(),
            producer_id: row["producer_id"].as_i64().unwrap(),
            epoch: row["epoch"].as_i64().unwrap() as i16,
        };
        self.admin.end(key, ending, PATIENCE).await.unwrap();
    }

    /// What readers of committed data see, once what is decided is there.
    async fn read(&self) -> Vec<String> {
        let under_way = [TransactionState::PrepareCommit, TransactionState::PrepareAbort];
        while !self.admin.list(&under_way, PATIENCE).await.unwrap().is_empty() {}
        let contents = oracle::topic(&self.bootstrap, &self.topic).unwrap();
        let values = contents.committed_values().flatten();
        values.map(|value| value.text().unwrap().to_owned()).collect()
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

impl Attempt {
    async fn write(&mut self, value: &str) {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("numbers", 0));
        builder.push(split, RawRecord::default());
        let (parts, records) = builder.finish().0.into_parts();
        let with = |record: Record<()>| Record { origin: record.origin, item: value.to_owned() };
        let batch = parts.with_records(records.into_iter().map(with).collect());
        let ctx = WriteContext { processing_time: Timestamp(1), watermark: Timestamp::MIN };
        self.driver.write(batch, &ctx).await.unwrap();
    }

    /// Pre-commits what was written, and returns the state that a checkpoint would have.
    async fn barrier(&mut self) -> (CheckpointId, State) {
        self.sequence += 1;
        let id = CheckpointId::new(self.lease.attempt(), self.sequence);
        (id, self.driver.barrier(id, Timestamp(1)).await.unwrap())
    }

    /// A checkpoint that is complete, and whose transactions wait.
    async fn checkpoint(&mut self, value: &str) -> CheckpointId {
        self.checkpoint_beside(value, None).await
    }

    /// The same, in which the sink `other`, of another system, holds a transaction back, too.
    async fn checkpoint_beside(&mut self, value: &str, other: Option<&str>) -> CheckpointId {
        self.write(value).await;
        let (id, state) = self.barrier().await;
        let mut manifest = Manifest::new(id, Timestamp(1_796_040_000_000));
        let stored = self.lease.store().put_state(&PartHome::Checkpoint(id), &state).await.unwrap();
        let subtask = SubtaskState { stored, ..SubtaskState::default() };
        let operator = OperatorState { parallelism: 1, subtasks: vec![subtask] };
        if let Some(other) = other {
            let subtask = SubtaskState { pending_transactions: 1, ..SubtaskState::default() };
            let operator = OperatorState { parallelism: 1, subtasks: vec![subtask] };
            manifest.operators.insert(other.into(), operator);
        }
        manifest.operators.insert("out".into(), operator);
        self.lease.complete(manifest).await.unwrap();
        id
    }

    async fn complete(&mut self, id: CheckpointId) {
        self.driver.complete(id).await.unwrap();
        self.lease.resolve(id).await.unwrap();
    }

    /// Ends like a process that dies: producers end without a word, and nobody holds the store.
    async fn ends(self) {
        let Self { lease, driver, .. } = self;
        drop(driver);
        lease.release().await;
    }

    /// Pre-commits a transaction that no complete checkpoint names.
    async fn leave(&mut self, value: &str) {
        self.write(value).await;
        self.barrier().await;
    }
}

/// The row of the transaction that a checkpoint names.
#[track_caller]
fn row_of(rows: &[Value], checkpoint: CheckpointId) -> &Value {
    let named = rows.iter().find(|row| row["checkpoint"] == checkpoint.to_string().as_str());
    named.unwrap_or_else(|| panic!("{checkpoint} in {rows:?}"))
}

fn id(row: &Value) -> &str {
    row["id"].as_str().unwrap()
}

/// [KSK-22] [BRG-08] a checkpoint whose transaction waits, one that is resolved, and a left-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_shows_what_became_of_each_transaction_and_what_a_start_would_do() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let first = attempt.checkpoint("resolved").await;
    attempt.complete(first).await;
    let second = attempt.checkpoint("waiting").await;
    attempt.leave("left over").await;
    attempt.ends().await;

    let rows = place.listed(&[]);
    assert_eq!(rows.len(), 3, "{rows:?}");
    let (waiting, resolved) = (row_of(&rows, second), row_of(&rows, first));
    let left_over = rows.iter().find(|row| row["checkpoint"].is_null()).unwrap();
    let told = |row: &Value| (row["state"].clone(), row["next_start"].clone());
    assert_eq!(told(waiting), ("pending".into(), "commit".into()));
    assert_eq!(told(resolved), ("committed".into(), "nothing".into()));
    assert_eq!(told(left_over), ("open".into(), "abort".into()));
    assert_eq!((&waiting["records"], &waiting["checkpoint_status"]), (&1.into(), &"waiting".into()));
    assert_eq!(waiting["partitions"][&place.topic], serde_json::json!([0]));
    let left = waiting["left_seconds"].as_u64().unwrap();
    assert!(left > 600 && left <= 900, "of 15 min: {left}");

    let text = place.printed(DONE, "list", &[]);
    let line = text.lines().find(|line| line.starts_with(id(waiting))).unwrap();
    let partition = format!("{}[0]", place.topic);
    for part in ["pending", "14m ", &second.to_string(), &partition, "commits it"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let summary = format!("3 transactions, the newest checkpoint is {second} of job \"delays\"\n");
    assert!(text.ends_with(&summary), "{text}");
    assert!(text.contains("aborts it: no checkpoint names it\n"), "{text}");
    assert_eq!(place.state(id(waiting)).await, TransactionState::Ongoing, "looking changes nothing");
}

/// [KSK-22] all of a checkpoint, and again; only with --yes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_a_checkpoint_are_committed() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let checkpoint = attempt.checkpoint("committed by hand").await;
    attempt.ends().await;
    let which = ["--checkpoint", &checkpoint.to_string()];

    let would = place.printed(WRONG, "commit", &which);
    assert!(would.starts_with("would be committed: ") && would.contains(", 1 record\n"), "{would}");
    assert!(would.ends_with("Nothing was changed. The same with --yes will commit them.\n"), "{would}");
    assert_eq!(place.read().await, [""; 0]);

    let yes = [&which[..], &["--yes"]].concat();
    assert!(place.printed(DONE, "commit", &yes).starts_with("committed: "));
    assert_eq!(place.read().await, ["committed by hand"]);
    assert!(place.printed(DONE, "commit", &yes).starts_with("was committed before: "));
    let document = place.printed(DONE, "commit", &[&yes[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["done"], &document["transactions"][0]["changed"]), (&true.into(), &false.into()));
    let refused = place.refused(REFUSED, "abort", &[&yes[..], &["--force"]].concat());
    assert!(refused.contains("it is committed"), "{refused}");
    assert_eq!(place.listed(&[])[0]["reason"], "visible already");
}

/// [KSK-22] what a start would commit is aborted with --force alone; a left-over without, and never committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_checkpoint_names_is_aborted_by_force_alone() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let checkpoint = attempt.checkpoint("named").await;
    attempt.leave("left over").await;
    attempt.ends().await;
    let rows = place.listed(&[]);
    let named = id(row_of(&rows, checkpoint));
    let left_over = id(rows.iter().find(|row| row["checkpoint"].is_null()).unwrap());

    let refused = place.refused(REFUSED, "abort", &["--id", named, "--yes"]);
    assert!(refused.contains(&format!("checkpoint {checkpoint} names it")), "{refused}");
    let refused = place.refused(REFUSED, "commit", &["--id", left_over, "--yes", "--force"]);
    assert!(refused.contains("no checkpoint names it, so its records are written again"), "{refused}");
    assert_eq!(place.state(named).await, TransactionState::Ongoing);
    assert_eq!(place.state(left_over).await, TransactionState::Ongoing);

    assert!(place.printed(DONE, "abort", &["--id", left_over, "--yes"]).starts_with("aborted: "));
    assert_eq!(place.state(named).await, TransactionState::Ongoing, "the other one waits");
    assert!(place.printed(DONE, "abort", &["--id", named, "--yes", "--force"]).starts_with("aborted: "));
    assert_eq!(place.read().await, [""; 0]);
    let refused = place.refused(REFUSED, "commit", &["--id", named, "--yes"]);
    assert!(refused.contains("it is aborted, its 1 records are gone"), "{refused}");
    assert_eq!(place.listed(&[])[0]["next_start"], "stop", "none is before it");
}

/// [KSK-22] [KSK-14] what cannot be committed as a whole is not committed in part; a torn one is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_of_a_checkpoint_is_committed_by_force_alone() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let before = attempt.checkpoint("before").await;
    attempt.complete(before).await;
    // Two subtasks' worth: what the one before left ride along is in the same state.
    attempt.leave("gone").await;
    let checkpoint = attempt.checkpoint("waiting").await;
    attempt.ends().await;
    let rows = place.listed(&[]);
    let of: Vec<_> = rows.iter().filter(|row| row["checkpoint"] == checkpoint.to_string().as_str()).collect();
    let [gone, waiting] = of[..] else { panic!("{rows:?}") };
    place.end(gone, Ending::Abort).await;

    let rows = place.listed(&[]);
    let told: Vec<_> = rows.iter().map(|row| (row["state"].clone(), row["next_start"].clone())).collect();
    let expected = [("aborted", "abort"), ("pending", "abort"), ("committed", "nothing")];
    assert_eq!(told, expected.map(|(state, next)| (Value::from(state), Value::from(next))));
    for which in [["--id", id(waiting)], ["--checkpoint", &checkpoint.to_string()]] {
        let refused = place.refused(REFUSED, "commit", &[&which[..], &["--yes"]].concat());
        assert!(refused.contains("nothing was changed"), "{refused}");
    }
    assert_eq!(place.state(id(waiting)).await, TransactionState::Ongoing);
    place.printed(DONE, "commit", &["--id", id(waiting), "--yes", "--force"]);
    let torn: Vec<_> = place.listed(&[]).iter().map(|row| row["reason"].clone()).collect();
    assert_eq!(torn[..2], ["torn: some are visible, others gone"; 2].map(Value::from));
    assert_eq!(place.read().await, ["before", "waiting"]);
}

/// [KSK-22] a start decides over all sinks of a checkpoint together, so one transaction of it is not committed by its id either
/// where another system holds something back, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_is_not_committed_past_what_another_system_holds_back() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let checkpoint = attempt.checkpoint_beside("held back", Some("files")).await;
    attempt.ends().await;
    let rows = place.listed(&[]);
    let transaction = id(row_of(&rows, checkpoint));
    for which in [["--id", transaction], ["--checkpoint", &checkpoint.to_string()]] {
        let refused = place.refused(REFUSED, "commit", &[&which[..], &["--yes"]].concat());
        assert!(refused.contains("also holds back what is not Kafka's, of files"), "{refused}");
    }
    assert_eq!(place.state(transaction).await, TransactionState::Ongoing);
    place.printed(DONE, "commit", &["--id", transaction, "--yes", "--force"]);
    assert_eq!(place.read().await, ["held back"]);
}

/// [KSK-22] [KSK-08] a handle of a transaction into which nothing was written hides nothing of the next one, which has its id and epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_transaction_hides_nothing_of_the_next_one() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    // The serialiser makes no message of it.
    attempt.write("").await;
    attempt.barrier().await;
    let checkpoint = attempt.checkpoint("waiting").await;
    attempt.ends().await;
    let rows = place.listed(&[]);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["records"], &rows[0]["next_start"]), (&1.into(), &"commit".into()));
    let done = place.printed(DONE, "commit", &["--checkpoint", &checkpoint.to_string(), "--yes"]);
    assert!(done.starts_with("committed: "), "{done}");
    assert_eq!(place.read().await, ["waiting"]);
}

/// [KSK-22] an id that somebody has taken meanwhile: neither its handle nor what is open under it is committed by the other's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handle_of_another_epoch_is_refused() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let checkpoint = attempt.checkpoint("fenced").await;
    attempt.ends().await;
    let rows = place.listed(&[]);
    let row = row_of(&rows, checkpoint);
    let identity = place.admin.fence(id(row), PATIENCE, PATIENCE).await.unwrap();
    assert!(i64::from(identity.epoch) > row["epoch"].as_i64().unwrap());
    let refused = place.refused(REFUSED, "commit", &["--id", id(row), "--yes", "--force"]);
    assert!(refused.contains("it is aborted, its 1 records are gone"), "{refused}");
    assert_eq!(place.read().await, [""; 0]);
}

/// [KSK-22] a rolled-back checkpoint: its records are read again, so they are not committed; aborting them is what a start does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_a_rolled_back_checkpoint_are_not_committed() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let first = attempt.checkpoint("kept").await;
    attempt.complete(first).await;
    let second = attempt.checkpoint("rolled back").await;
    attempt.lease.roll_back(Some(first)).await.unwrap();
    attempt.ends().await;
    let rows = place.listed(&[]);
    let row = row_of(&rows, second);
    assert_eq!((&row["checkpoint_status"], &row["next_start"]), (&"rolled_back".into(), &"abort".into()));
    let refused = place.refused(REFUSED, "commit", &["--id", id(row), "--yes", "--force"]);
    assert!(refused.contains("is rolled back"), "{refused}");
    place.printed(DONE, "abort", &["--id", id(row), "--yes"]);
    assert_eq!(place.read().await, ["kept"]);
}

/// [KSK-22] [BRG-08] beside a running job: looked at, and not touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_job_is_looked_at_and_its_transactions_are_not_ended() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    let checkpoint = attempt.checkpoint("its own").await;
    // This process lives.
    let store = Store::open(place.store().to_str().unwrap()).await.unwrap();
    let lease = store.take_lease("delays", TakeOver::Always).await.unwrap();
    let rows = place.listed(&[]);
    let which = ["--id", id(row_of(&rows, checkpoint)), "--yes", "--force"];
    for command in ["commit", "abort"] {
        let refused = place.refused(RUNNING, command, &which);
        assert!(refused.contains("job \"delays\" runs and holds the store"), "{refused}");
    }
    lease.confirm().await.expect("it is still its own");
    assert!(place.printed(DONE, "list", &[]).contains("; the job runs: \"delays\" on"));
    lease.release().await;
    place.printed(DONE, "commit", &which);
    lease_is_free(&store).await;
    assert_eq!(place.read().await, ["its own"]);
    drop(attempt);
}

/// The next start need not wait for the command's lease.
async fn lease_is_free(store: &Store) {
    store.take_lease("delays", TakeOver::IfAbandoned).await.expect("nobody holds it").release().await;
}

/// [KSK-22] what is not there is told, and not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_told() {
    let place = Place::new();
    let missing = place.refused(WRONG, "list", &[]);
    assert!(missing.contains("there is no such folder") && !place.store().exists(), "{missing}");
    let mut attempt = place.attempt().await;
    attempt.checkpoint("v").await;
    attempt.ends().await;
    let file = place.folder.path().join("properties");
    std::fs::write(&file, "# remark\n\nsecurity.protocol = plaintext\nnonsense\n").unwrap();
    for (command, arguments, complaint) in [
        ("commit", vec!["--checkpoint", "9-7", "--yes"], "checkpoint 9-7 is not among the newest"),
        ("abort", vec!["--id", "payments", "--yes"], "neither a checkpoint nor the brokers know payments"),
        ("abort", vec!["--yes"], "<--id <ID>|--checkpoint <CHECKPOINT>>"),
        ("list", vec!["--properties", file.to_str().unwrap()], "line 4: expected `name=value`"),
    ] {
        let told = place.refused(WRONG, command, &arguments);
        assert!(told.contains(complaint), "{arguments:?}: {told}");
    }
    // Slots that were made ready, and the id by which the sink asks whether ids may be used.
    assert!(place.listed(&["--all"]).len() > 2);
    assert_eq!(place.listed(&[]).len(), 1);
}

/// [KSK-22] [KSK-21] a cluster that wants a certificate, by a file of properties.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secured_cluster_is_reached_by_a_file_of_properties() {
    let place = Place::new();
    let mut attempt = place.attempt().await;
    attempt.checkpoint("elsewhere").await;
    attempt.ends().await;
    let secured = Kafka::builder().secured().start().unwrap();
    let properties = secured.client_properties(Security::Tls).unwrap();
    let lines = properties.iter().map(|(name, value)| match name.as_str() {
        "ssl.ca.location" => format!("{name}=${{LEVADA_TEST_CA}}\n"),
        _ => format!("{name} = {value}\n"),
    });
    let file = place.folder.path().join("client.properties");
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let (_, authority) = properties.iter().find(|(name, _)| name == "ssl.ca.location").unwrap();
    let mut levada = Command::new(env!("CARGO_BIN_EXE_levada"));
    levada.args([
        "transactions",
        "list",
        place.store().to_str().unwrap(),
        "--prefix",
        &place.topic,
        "--json",
    ]);
    levada.args(["--properties", file.to_str().unwrap()]).env("LEVADA_TEST_CA", authority);
    let output = levada.output().unwrap();
    let (out, error) = texts(&output);
    assert_eq!(output.status.code(), Some(DONE), "{out}{error}");
    // Another cluster than the one that the handle names: nothing follows from its silence.
    let document: Value = serde_json::from_str(&out).unwrap();
    let row = &document["transactions"][0];
    assert_eq!((&row["state"], &row["next_start"]), (&"unknown".into(), &"stop".into()));
}
