//! `levada checkpoint` as a process, over stores that a job with checkpoints wrote.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use levada_core::template::{Emit, IdempotentSink, Next, SourceFunction, WriteContext};
use levada_core::{
    Batch, CheckpointId, Clock, ListState, SinkContext, SinkError, SourceContext, SourceError, Spread, State,
    Timestamp,
};
use levada_engine::store::{
    Lease, Manifest, OperatorState, PartHome, ProcessId, Store, SubtaskState, TakeOver,
};
use levada_engine::{CheckpointedJob, Job};
use tempfile::TempDir;

const WHOLE: i32 = 0;
const UNREADABLE: i32 = 1;
const WRONG: i32 = 2;
const DAMAGED: i32 = 8;

/// Every time is this one.
#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp(1_796_040_000_000)
    }
}

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    async fn lease(&self, owner: &str) -> Lease {
        let process = ProcessId { host: "host-a".into(), host_id: "a".into(), pid: 17, started: 4711 };
        let store = Store::open(self.path().to_str().unwrap()).await.unwrap();
        store
            .with_clock(Arc::new(Noon))
            .with_process(process)
            .take_lease(owner, TakeOver::Always)
            .await
            .unwrap()
    }

    /// Two attempts with an entry of every kind.
    async fn filled() -> Self {
        let place = Self::new();
        let mut lease = place.lease("flights").await;
        for sequence in 1..=3 {
            let id = complete(&mut lease, sequence).await;
            lease.resolve(id).await.unwrap();
        }
        lease.retain(2).await.unwrap();
        let mut second = place.lease("delays").await;
        complete(&mut second, 1).await;
        let name = "before upgrade";
        let id = CheckpointId::new(second.attempt(), 2);
        let manifest = written(&second, id, PartHome::Savepoint(name.into())).await;
        second.complete_savepoint(name, manifest).await.unwrap();
        place
    }

    /// A part of the newest checkpoint.
    fn newest_part(&self) -> PathBuf {
        let savepoint = fs::read_dir(self.path().join("savepoints/before%20upgrade"));
        let savepoint = savepoint.or_else(|_| fs::read_dir(self.path().join("savepoints/before upgrade")));
        let files = savepoint.unwrap().map(|file| file.unwrap().path());
        files.into_iter().find(|file| file.file_name().unwrap() != "manifest").unwrap()
    }

    fn entry(&self, number: u64) -> PathBuf {
        self.path().join(format!("log/{number:020}"))
    }
}

fn state(bytes: usize) -> State {
    State::new().with("elements", ListState::new(Spread::Split, 1, vec![vec![7; bytes]]))
}

async fn written(lease: &Lease, id: CheckpointId, home: PartHome) -> Manifest {
    let mut manifest = Manifest::new(id, Timestamp(1_796_040_000_000 + id.sequence as i64));
    let mut source = OperatorState { parallelism: 2, subtasks: Vec::new() };
    for subtask in 0..2_u64 {
        let stored = lease.store().put_state(&home, &State::new()).await.unwrap();
        let positions = [(format!("flights-{subtask}"), 1000 * id.sequence + subtask)].into();
        source.subtasks.push(SubtaskState { stored, positions, ..SubtaskState::default() });
    }
    manifest.operators.insert("flights".into(), source);
    let mut sink = OperatorState { parallelism: 2, subtasks: Vec::new() };
    for bytes in [3 << 20, 100] {
        let stored = lease.store().put_state(&home, &state(bytes)).await.unwrap();
        let (pending_transactions, pending_records) = (1, 50);
        sink.subtasks.push(SubtaskState {
            stored,
            pending_transactions,
            pending_records,
            ..SubtaskState::default()
        });
    }
    manifest.operators.insert("delays".into(), sink);
    manifest
}

async fn complete(lease: &mut Lease, sequence: u64) -> CheckpointId {
    let id = CheckpointId::new(lease.attempt(), sequence);
    let manifest = written(lease, id, PartHome::Checkpoint(id)).await;
    lease.complete(manifest).await.unwrap();
    id
}

fn levada(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.arg("checkpoint").args(arguments).output().unwrap()
}

/// Runs a command over a place, checks its exit code, and returns what it printed.
#[track_caller]
fn printed(code: i32, command: &str, place: &Path, more: &[&str]) -> String {
    let output = levada(&[&[command, place.to_str().unwrap()], more].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{out}\n{error}");
    assert_eq!(error, "", "nothing is wrong with the command");
    out
}

/// Runs a command that has nothing to print, and returns what it complains of.
#[track_caller]
fn refused(code: i32, arguments: &[&str]) -> String {
    let output = levada(arguments);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(output.stdout, b"");
    String::from_utf8(output.stderr).unwrap()
}

/// Every file of a store with its content.
fn content(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.clone(), Vec::new()));
            found.extend(content(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// [CHK-18] [BRG-08]
#[tokio::test]
async fn list_shows_the_entries_in_their_order() {
    let place = Place::filled().await;
    let before = content(&place.path());
    assert_eq!(
        printed(WHOLE, "list", &place.path(), &[]),
        "\
ENTRY  KIND        CHECKPOINT  TIME                          STATE  SPLITS  PENDING
    1  lease                   2026-11-30T12:00:00.000Z                              \"flights\" on host-a, process 17, attempt 1
    4  checkpoint  1-2         2026-11-30T12:00:00.002Z  3.000 MiB       2        2  resolved
    5  resolved    1-2
    6  checkpoint  1-3         2026-11-30T12:00:00.003Z  3.000 MiB       2        2  resolved
    7  resolved    1-3
    8  discarding  1-1
    9  lease                   2026-11-30T12:00:00.000Z                              \"delays\" on host-a, process 17, attempt 9
   10  checkpoint  9-1         2026-11-30T12:00:00.001Z  3.000 MiB       2        2
   11  checkpoint  9-2         2026-11-30T12:00:00.002Z  3.000 MiB       2        2  savepoint \"before upgrade\"

4 checkpoints to restore from, the newest 9-2
"
    );
    let of_job = printed(WHOLE, "list", &place.path(), &["--job", "flights"]);
    assert!(of_job.contains(" 1-3 ") && !of_job.contains("9-1"), "{of_job}");
    assert!(of_job.ends_with("2 checkpoints to restore from, the newest 1-3\n"), "{of_job}");
    assert_eq!(content(&place.path()), before, "looking changes nothing");
}

/// [CHK-18]
#[tokio::test]
async fn show_tells_state_positions_and_pending_transactions() {
    let place = Place::filled().await;
    assert_eq!(
        printed(WHOLE, "show", &place.path(), &["9-2"]),
        "\
Checkpoint 9-2
  savepoint  before upgrade
  triggered  2026-11-30T12:00:00.002Z
  status     complete, not yet resolved: its transactions may still be pending
  state      3.000 MiB in 2 operators
  pending    2 transactions, 100 records

OPERATOR  SUBTASKS      STATE  PARTS  PENDING
delays           2  3.000 MiB      1        2
flights          2      0 MiB      0        0

OPERATOR  SPLIT      NEXT
flights   flights-0  2000
flights   flights-1  2001
"
    );
}

/// [CHK-18]
#[tokio::test]
async fn verify_reads_every_piece() {
    let place = Place::filled().await;
    assert_eq!(
        printed(WHOLE, "verify", &place.path(), &[]),
        "\
ENTRY  CHECKPOINT  TIME                          STATE  PARTS
    4  1-2         2026-11-30T12:00:00.002Z  3.000 MiB      1  whole
    6  1-3         2026-11-30T12:00:00.003Z  3.000 MiB      1  whole
   10  9-1         2026-11-30T12:00:00.001Z  3.000 MiB      1  whole
   11  9-2         2026-11-30T12:00:00.002Z  3.000 MiB      1  whole

9 entries and 4 checkpoints read, all whole
"
    );
}

/// [CHK-18] [CHK-08] A damage has its own exit code, and its entry and cause in the report.
#[tokio::test]
async fn damage_is_named_with_entry_and_cause() {
    let place = Place::filled().await;
    let part = place.newest_part();
    let mut bytes = fs::read(&part).unwrap();
    bytes[1 << 20] ^= 1;
    fs::write(&part, bytes).unwrap();
    fs::write(place.entry(7), b"torn").unwrap();
    let name = part.file_name().unwrap().to_str().unwrap();

    let verified = printed(DAMAGED, "verify", &place.path(), &[]);
    let torn = "DAMAGED  entry 7, the entry itself does not begin as a piece of a store does\n";
    let flipped = format!("DAMAGED  entry 11, part {name} does not match its checksum\n");
    assert!(verified.contains("3.000 MiB      1  DAMAGED\n"), "{verified}");
    assert!(verified.contains(torn) && verified.contains(&flipped), "{verified}");
    assert!(verified.ends_with("8 entries and 4 checkpoints read; 2 damages\n"), "{verified}");

    let listed = printed(DAMAGED, "list", &place.path(), &[]);
    assert!(listed.contains(torn), "{listed}");
    assert!(listed.ends_with("4 checkpoints to restore from, the newest 9-2; 1 damage\n"), "{listed}");
    let shown = printed(DAMAGED, "show", &place.path(), &["9-2"]);
    assert!(shown.ends_with(&flipped), "{shown}");
    printed(WHOLE, "show", &place.path(), &["9-1"]);
}

/// [CHK-18] [BRG-08] The same for programs.
#[tokio::test]
async fn json_has_what_the_text_has() {
    let place = Place::filled().await;
    fs::remove_file(place.newest_part()).unwrap();
    let parse = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let verified = parse(printed(DAMAGED, "verify", &place.path(), &["--json"]));
    let entries = verified["entries"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let expected = ["lease", "checkpoint", "resolved", "checkpoint", "resolved", "discarding", "lease"];
    assert_eq!(kinds, [&expected[..], &["checkpoint", "checkpoint"]].concat());
    assert_eq!(entries[0]["owner"], "flights");
    assert_eq!(entries[0]["at"], "2026-11-30T12:00:00.000Z");
    assert_eq!(verified["damages"][0]["entry"], 11);
    assert_eq!(verified["damages"][0]["cause"], "is missing");

    let shown = parse(printed(WHOLE, "show", &place.path(), &["9-1", "--json"]));
    assert_eq!((&shown["id"], &shown["resolved"]), (&"9-1".into(), &false.into()));
    assert_eq!((&shown["pending_transactions"], &shown["pending_records"]), (&2.into(), &100.into()));
    assert_eq!(shown["operators"]["flights"]["positions"]["flights-1"], 1001);
    assert_eq!(shown["operators"]["delays"]["parts"], 1);
    assert_eq!(shown["damages"].as_array().unwrap().len(), 0);
    assert_eq!(
        parse(printed(WHOLE, "list", &place.path(), &["--json"]))["entries"].as_array().unwrap().len(),
        9
    );
}

/// [CHK-18]
#[tokio::test]
async fn a_roll_back_is_an_entry_and_what_it_drops_is_not_restored() {
    let place = Place::new();
    let mut lease = place.lease("flights").await;
    let first = complete(&mut lease, 1).await;
    complete(&mut lease, 2).await;
    lease.roll_back(Some(first)).await.unwrap();
    let listed = printed(WHOLE, "list", &place.path(), &[]);
    assert!(listed.contains("    4  rolled back  1-1\n"), "{listed}");
    assert!(listed.ends_with("1 checkpoint to restore from, the newest 1-1\n"), "{listed}");
    let json = printed(WHOLE, "list", &place.path(), &["--job", "flights", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["entries"][3]["kind"], &json["entries"][3]["to"]),
        (&"rolled_back".into(), &"1-1".into())
    );

    lease.roll_back(None).await.unwrap();
    let listed = printed(WHOLE, "list", &place.path(), &[]);
    assert!(listed.contains("    5  rolled back  start\n"), "{listed}");
    assert!(listed.ends_with("0 checkpoints to restore from\n"), "{listed}");
}

/// [CHK-09] [CHK-18] What the first version of the store's format wrote is shown.
#[test]
fn a_store_of_every_format_is_shown() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/engine/tests/golden/store-1");
    assert_eq!(
        printed(WHOLE, "list", &place, &[]),
        "\
ENTRY  KIND        CHECKPOINT  TIME                          STATE  SPLITS  PENDING
    1  lease                   1970-01-01T00:00:00.000Z                              \"golden\" on host, process 17, attempt 1
    4  checkpoint  1-2         1970-01-01T00:00:00.005Z  0.010 MiB       2        2  resolved
    5  resolved    1-2
    6  checkpoint  1-3         1970-01-01T00:00:00.005Z  0.010 MiB       2        2  resolved
    7  resolved    1-3
    8  discarding  1-1
    9  checkpoint  1-4         1970-01-01T00:00:00.005Z  0.010 MiB       2        2

3 checkpoints to restore from, the newest 1-4
"
    );
    assert!(printed(WHOLE, "verify", &place, &[]).ends_with("7 entries and 3 checkpoints read, all whole\n"));
}

/// [CHK-18]
#[tokio::test]
async fn an_empty_store_is_no_error() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    assert_eq!(printed(WHOLE, "list", &place.path(), &[]), "The store is empty: no job has begun in it.\n");
    assert_eq!(printed(WHOLE, "verify", &place.path(), &[]), "0 entries and 0 checkpoints read, all whole\n");
    let empty = printed(WHOLE, "list", &place.path(), &["--json"]);
    assert_eq!(empty, "{\n  \"entries\": [],\n  \"damages\": []\n}\n");
    assert_eq!(content(&place.path()), [], "looking leaves nothing");
}

/// [CHK-18] What is not there is told, and not made.
#[tokio::test]
async fn what_is_not_there_is_told() {
    let place = Place::filled().await;
    let store = place.path();
    let store = store.to_str().unwrap();
    let missing = place.0.path().join("none");
    let file = place.entry(1);
    for (code, arguments, complaint) in [
        (WRONG, vec!["list", missing.to_str().unwrap()], "there is no such folder"),
        (WRONG, vec!["verify", file.to_str().unwrap()], "it is a file, and a store is a folder"),
        (WRONG, vec!["list", "ftp://host/store"], "no place for checkpoints"),
        (WRONG, vec!["show", store, "9-7"], "checkpoint 9-7 is not in the store"),
        (WRONG, vec!["show", store, "nine"], "as in 3-17"),
        (WRONG, vec!["list", store, "--job", "trains"], "there are attempts of \"delays\", \"flights\""),
    ] {
        let told = refused(code, &arguments);
        assert!(told.contains(complaint), "{arguments:?}: {told}");
    }
    assert!(!missing.exists());
}

/// [CHK-18] A server that cannot be reached has another exit code than a place that is none.
#[test]
fn a_cloud_that_cannot_be_reached_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levada"));
    command.args(["checkpoint", "list", "s3://bucket/store"]);
    // A port that nobody can listen on. Retries would take minutes.
    command.env("AWS_ENDPOINT", "http://127.0.0.1:0").env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "none").env("AWS_SECRET_ACCESS_KEY", "none");
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(UNREADABLE), "{told}");
    assert!(told.contains("the store cannot be read: could not list"), "{told}");
}

/// Emits a number a call, without end, until the job is stopped.
#[derive(Debug)]
struct Endless(u64);

impl SourceFunction for Endless {
    type Item = u64;

    async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        out.record(self.0);
        self.0 += 1;
        tokio::task::yield_now().await;
        Ok(Next::More)
    }

    fn snapshot(&mut self, _: CheckpointId) -> State {
        state(20_000)
    }
}

#[derive(Debug)]
struct Nowhere;

impl IdempotentSink<u64> for Nowhere {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn upsert(&mut self, _: Batch<u64>, _: &WriteContext) -> Result<(), SinkError> {
        Ok(())
    }
}

fn endless_job() -> CheckpointedJob {
    let flow = Job::new("endless").parallelism(2).source_function("numbers", |_| Endless(0));
    flow.idempotent_sink("nowhere", |_| Nowhere)
}

/// [CHK-18] Looking takes no lease from a job that runs, and what the job discards meanwhile is no damage.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_looked_at_and_not_disturbed() {
    let place = Place::new();
    let store = Store::open(place.path().to_str().unwrap()).await.unwrap();
    let mut job = endless_job().start(store).unwrap();
    let mut last = job.trigger_checkpoint().await.unwrap();
    for command in ["list", "verify", "list", "verify"] {
        let path = place.path();
        let looking = tokio::task::spawn_blocking(move || printed(WHOLE, command, &path, &[]));
        while !looking.is_finished() {
            last = job.trigger_checkpoint().await.unwrap();
        }
        let seen = looking.await.unwrap();
        assert!(seen.contains("1-"), "{seen}");
    }
    let shown = printed(WHOLE, "show", &place.path(), &[&last.to_string()]);
    assert!(shown.contains("numbers          2  0.038 MiB      2        0\n"), "{shown}");
    let newest = job.stop().await.unwrap();
    let report = job.wait().await.unwrap();
    assert_eq!((report.last, report.restarts), (Some(newest), 0), "the lease is still its own");
    let listed = printed(WHOLE, "list", &place.path(), &[]);
    assert_eq!(listed.matches("lease").count(), 1, "{listed}");
    assert!(listed.ends_with(&format!("2 checkpoints to restore from, the newest {newest}\n")), "{listed}");
}
