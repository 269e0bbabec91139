//! [CHK-08] Starts from a store with damage.

use std::fs;
use std::path::{Path, PathBuf};

use levada_core::CheckpointId;
use levada_engine::store::{Refusal, Row, Store};
use levada_engine::{CheckpointedJob, JobError};

use crate::heavy::{Rows, heavy_job, idempotent_job};
use crate::journal::take_errors;
use crate::scene::{END, Scene, all, chain, up_to};
use crate::target::Phase;

/// What happens to a file.
type Harm = fn(&Path);

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

fn empty(path: &Path) {
    fs::write(path, b"").unwrap();
}

fn remove(path: &Path) {
    fs::remove_file(path).unwrap();
}

const HARMS: [(&str, Harm); 4] =
    [("flipped", flip), ("truncated", truncate), ("empty", empty), ("missing", remove)];

/// A piece of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Entry,
    Part,
}

struct Damaged {
    scene: Scene,
    folder: tempfile::TempDir,
}

impl Damaged {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap()).await.unwrap();
        Self { scene: Scene::over(store), folder }
    }

    /// Runs a job until checkpoints of 300 and of 600 numbers are resolved, and stops it there. Returns the newest two that
    /// are left, with the numbers of their entries.
    async fn stopped_at_600(&self, job: CheckpointedJob) -> [(u64, CheckpointId); 2] {
        let mut job = self.scene.start(job);
        self.scene.reach(&job, 300, 2).await;
        job.trigger_checkpoint().await.unwrap();
        self.scene.reach(&job, 600, 2).await;
        job.stop().await.unwrap();
        job.wait().await.unwrap();
        let kept = self.kept().await;
        kept[kept.len() - 2..].try_into().unwrap()
    }

    async fn kept(&self) -> Vec<(u64, CheckpointId)> {
        let rows = self.scene.store.list().await.unwrap().rows;
        let kept = rows.iter().filter_map(|row| match row {
            Row::Checkpoint { number, summary } if !summary.discarded => Some((*number, summary.id)),
            _ => None,
        });
        kept.collect()
    }

    fn entry(&self, number: u64) -> PathBuf {
        self.folder.path().join("log").join(format!("{number:020}"))
    }

    fn part(&self, checkpoint: CheckpointId) -> PathBuf {
        let parts = fs::read_dir(self.folder.path().join("parts").join(checkpoint.to_string())).unwrap();
        parts.map(|part| part.unwrap().path()).min().unwrap()
    }

    fn harm(&self, (number, checkpoint): (u64, CheckpointId), piece: Piece, harm: Harm) {
        match piece {
            Piece::Entry => harm(&self.entry(number)),
            Piece::Part => harm(&self.part(checkpoint)),
        }
    }
}

fn cases() -> impl Iterator<Item = (Piece, &'static str, Harm)> {
    let of = |piece| HARMS.into_iter().map(move |(name, harm)| (piece, name, harm));
    [Piece::Entry, Piece::Part].into_iter().flat_map(of)
}

/// [CHK-08] The sink writes what came after the older one again, and ends with what it should have.
#[tokio::test]
async fn with_idempotent_sinks_a_damaged_checkpoint_is_passed_over_with_a_loud_line() {
    for (piece, name, harm) in cases() {
        let (damaged, rows) = (Damaged::new().await, Rows::default());
        let [older, newest] = damaged.stopped_at_600(idempotent_job(&damaged.scene, &rows)).await;
        damaged.harm(newest, piece, harm);
        take_errors();
        damaged.scene.finish(idempotent_job(&damaged.scene, &rows)).await.unwrap();
        let errors = take_errors();
        let is_told = |line: &String| {
            line.contains("an older checkpoint is used")
                && line.contains(&format!("checkpoint={}", older.1))
                && line.contains(&format!("entry: Some({})", newest.0))
        };
        assert!(errors.iter().any(is_told), "{piece:?} {name}: {errors:?}");
        assert_eq!(rows.numbers(), all(), "{piece:?} {name}");
        assert_eq!(
            rows.written_again(),
            300,
            "{piece:?} {name}: read again from the older one, not from the start"
        );
    }
}

/// [CHK-08] [CHK-21] Stopped, with entry and damage; nothing is touched until a replay is allowed, and that doubles exactly what the
/// refusal said.
#[tokio::test]
async fn with_a_two_phase_sink_a_damaged_checkpoint_stops_the_job_until_a_replay_is_allowed() {
    for (piece, name, harm) in cases() {
        let damaged = Damaged::new().await;
        let scene = &damaged.scene;
        let [older, newest] = damaged.stopped_at_600(heavy_job(scene, 2, 10_000)).await;
        damaged.harm(newest, piece, harm);
        scene.target.take_calls();
        let error = scene.finish(heavy_job(scene, 2, 10_000)).await.unwrap_err();
        let JobError::Refusal(refusal) = &error else { panic!("{piece:?} {name}: {error:?}") };
        assert!(matches!(&**refusal, Refusal::NeedsReplay { from, .. } if *from == older.1), "{refusal:?}");
        let text = chain(&error);
        for part in [format!("entry {}", newest.0), format!("from checkpoint {}", older.1)] {
            assert!(text.contains(&part), "{piece:?} {name}: {part} is not in: {text}");
        }
        let verbs = scene.target.take_calls();
        assert!(verbs.iter().all(|call| call.starts_with("open")), "{piece:?} {name}: {verbs:?}");
        assert_eq!(scene.target.visible(), up_to(600));

        scene.finish(heavy_job(scene, 2, 10_000).allow_replay()).await.unwrap();
        let mut visible = scene.target.visible();
        assert_eq!(visible.len(), END as usize + 300, "{piece:?} {name}");
        visible.dedup();
        assert_eq!(visible, all(), "{piece:?} {name}");
    }
}

/// [CHK-08] What the damaged one held back was not visible, so a replay doubles nothing: the fence has ended it.
#[tokio::test]
async fn a_replay_from_before_a_damaged_checkpoint_that_was_not_published_doubles_nothing() {
    for (piece, name, harm) in cases() {
        let damaged = Damaged::new().await;
        let scene = &damaged.scene;
        let mut job = scene.start(heavy_job(scene, 2, 10_000));
        scene.resolve(&job, 300, 2).await;
        scene.target.set_away(true);
        scene.reach(&job, 600, 2).await;
        job.trigger_checkpoint().await.unwrap();
        job.wait().await.unwrap_err();
        scene.target.set_away(false);
        let newest = *damaged.kept().await.last().unwrap();
        damaged.harm(newest, piece, harm);
        let outcome = scene.finish(heavy_job(scene, 2, 10_000)).await;
        // Nothing tells of the last entry of a log that it was there; what it held back is ended all the same.
        let is_told = (piece, name) != (Piece::Entry, "missing");
        assert_eq!(outcome.is_err(), is_told, "{piece:?} {name}: {outcome:?}");
        scene.finish(heavy_job(scene, 2, 10_000).allow_replay()).await.unwrap();
        assert_eq!(scene.target.visible(), all(), "{piece:?} {name}");
        assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0], "{piece:?} {name}");
    }
}

/// [CHK-08] With any sink, and with a replay allowed.
#[tokio::test]
async fn when_every_checkpoint_is_damaged_the_job_starts_from_nothing_only_when_asked() {
    for (piece, name, harm) in cases() {
        let (damaged, rows) = (Damaged::new().await, Rows::default());
        let scene = &damaged.scene;
        damaged.stopped_at_600(idempotent_job(scene, &rows)).await;
        for checkpoint in damaged.kept().await {
            damaged.harm(checkpoint, piece, harm);
        }
        for job in [idempotent_job(scene, &rows), idempotent_job(scene, &rows).allow_replay()] {
            let error = scene.finish(job).await.unwrap_err();
            assert!(
                chain(&error).contains("no checkpoint of the store can be used"),
                "{piece:?} {name}: {}",
                chain(&error)
            );
            assert_eq!(rows.written_again(), 0);
        }
        scene.finish(idempotent_job(scene, &rows).allow_fresh_start()).await.unwrap();
        assert_eq!((rows.numbers(), rows.written_again()), (all(), 600), "{piece:?} {name}");
    }
}
