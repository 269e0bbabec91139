//! [CHK-03] [CHK-14] A process that is killed at any moment leaves a store that can be read.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use levada_core::CheckpointId;
use levada_engine::store::{Store, TakeOver};

use crate::places::complete;

const FOLDER: &str = "LEVADA_CRASHING_STORE";
const ROUNDS: u64 = 25;

/// Writes checkpoints as fast as it can and tells of each, until it is killed.
#[tokio::test]
#[ignore = "runs in the child process of the next test"]
async fn child() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let store = Store::open(&folder).await.unwrap();
    // The process before is dead: that is seen, without `Always`.
    let mut lease = store.take_lease("child", TakeOver::IfAbandoned).await.unwrap();
    for sequence in 1.. {
        let id = complete(&mut lease, sequence).await;
        println!("\ncomplete {id}");
        lease.resolve(id).await.unwrap();
        lease.retain(2).await.unwrap();
    }
}

fn start(folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    (child, lines)
}

fn completed(line: &str) -> Option<CheckpointId> {
    let (attempt, sequence) = line.trim().strip_prefix("complete ")?.split_once('-')?;
    Some(CheckpointId::new(attempt.parse().ok()?, sequence.parse().ok()?))
}

/// [CHK-03] Nothing that was said to be complete is lost, and nothing that is there is torn.
#[tokio::test]
async fn a_killed_process_leaves_a_store_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let (mut child, mut lines) = start(folder.path());
        let mut newest = None;
        // Killed while it writes on; where in its next steps it is then, chance decides.
        let mut line = String::new();
        while completed(&line).is_none_or(|id| id.sequence <= round % 7) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended by itself");
            newest = newest.max(completed(&line));
        }
        child.kill().unwrap();
        for line in lines.lines().map_while(Result::ok) {
            newest = newest.max(completed(&line));
        }
        child.wait().unwrap();

        let store = Store::open_to_read(folder.path().to_str().unwrap()).unwrap();
        let recovery = store.latest().await.unwrap();
        assert_eq!(recovery.log.damages, [], "round {round}");
        assert!(recovery.newest.map(|manifest| manifest.id) >= newest, "round {round}: {newest:?} is lost");
        assert_eq!(store.verify().await.unwrap().damages, [], "round {round}");
    }
}
