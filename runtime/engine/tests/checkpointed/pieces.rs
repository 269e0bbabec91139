//! [TPL-06] Long segments in pieces, in the checkpoint store.

use std::path::{Path, PathBuf};

use levada_engine::driver::Retry;
use levada_engine::store::{RestoreFrom, Store};
use levada_engine::{CheckpointedJob, Job};

use crate::scene::{Scene, all, chain, restarts, up_to};
use crate::segments::Segments;

/// Eight numbers, each with its length.
const PIECE: usize = 8 * 12;

fn job(scene: &Scene, segments: &Segments) -> CheckpointedJob {
    let segments = segments.clone();
    let retry = Retry { attempts: 1, ..Retry::default() };
    Job::new("count")
        .parallelism(2)
        .source_function("numbers", scene.source())
        .write_ahead_sink("segments", retry, move |_| (segments.clone(), segments.clone()))
        .piece_bytes(PIECE)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

async fn scene_in(folder: &Path) -> Scene {
    Scene::over(Store::open(folder.to_str().unwrap()).await.unwrap())
}

/// [TPL-06] Named by every checkpoint that holds their segment, kept as long as any does, and deleted then.
#[tokio::test]
async fn pieces_are_kept_as_long_as_a_checkpoint_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, segments) = (scene_in(folder.path()).await, Segments::default());
    let pieces = || files(&folder.path().join("pieces")).len() as u64;
    segments.lock().is_closed = true;
    let mut job = scene.start(job(&scene, &segments));
    for up_to in [200, 300, 400, 500] {
        let newest = scene.resolve(&job, up_to, 2).await;
        let (summary, damages) = scene.store.show(newest).await.unwrap().unwrap();
        assert_eq!(damages, []);
        let sink = &summary.operators["segments"];
        assert_eq!(
            (sink.pieces, sink.pending_records),
            (pieces(), up_to),
            "all segments of all checkpoints wait"
        );
        assert!(sink.pieces > up_to / 16, "{}", sink.pieces);
    }
    segments.lock().is_closed = false;
    // The segments go with the first of them; the last checkpoints that hold them go with the others.
    for up_to in [501, 502, 503] {
        scene.resolve(&job, up_to, 2).await;
    }
    assert_eq!(segments.visible(), up_to(503));
    assert_eq!(pieces(), 0);
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(segments.visible(), all());
    assert_eq!(scene.store.verify().await.unwrap().damages, []);
}

/// [TPL-06] [TPL-08] From another process, and after a failure in the middle of an interval, whose pieces are cleared away.
#[tokio::test]
async fn pieces_are_read_back_and_those_of_failed_intervals_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, segments) = (scene_in(folder.path()).await, Segments::default());
    let pieces = || files(&folder.path().join("pieces")).len();
    segments.lock().is_closed = true;
    let mut first = scene.start(job(&scene, &segments));
    let held = scene.resolve(&first, 300, 2).await;
    let named = pieces();
    *scene.gate.fail_at.lock().unwrap() = Some(600);
    scene.gate.raise(u64::MAX);
    first.wait().await.unwrap_err();
    assert!(pieces() > named, "the interval was written while it grew");
    assert_eq!(scene.store.show(held).await.unwrap().unwrap().0.operators["segments"].pieces, named as u64);

    segments.lock().is_closed = false;
    let mut second = scene.start(job(&scene, &segments).restarts(restarts(1)));
    scene.gate.raise(u64::MAX);
    second.wait().await.unwrap();
    assert_eq!(segments.visible(), all());
    let newest = scene.store.latest().await.unwrap();
    let kept: usize = newest.log.checkpoints().map(|(_, manifest)| manifest.pieces().count()).sum();
    assert!(pieces() <= kept, "{} pieces, of which {kept} are named", pieces());
}

/// [CHK-08] A piece that is missing makes its checkpoint a damaged one.
#[tokio::test]
async fn a_missing_piece_is_damage_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, segments) = (scene_in(folder.path()).await, Segments::default());
    segments.lock().is_closed = true;
    let first = scene.start(job(&scene, &segments));
    let newest = scene.resolve(&first, 300, 2).await;
    drop(first);
    let pieces = files(&folder.path().join("pieces"));
    std::fs::remove_file(&pieces[0]).unwrap();
    let (_, damages) = scene.store.show(newest).await.unwrap().unwrap();
    assert_eq!(damages.len(), 1);
    let from = RestoreFrom::Checkpoint(newest);
    let error = scene.finish(job(&scene, &segments).restore_from(from).take_over()).await.unwrap_err();
    assert!(chain(&error).contains("is damaged") && chain(&error).contains("missing"), "{error:?}");
}

/// [TPL-06] [CHK-08] A piece that goes missing while its segment waits fails the job at the next notification, and each start
/// behind it finds the damage in the checkpoint.
#[tokio::test]
async fn a_piece_that_goes_missing_ends_the_job_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, segments) = (scene_in(folder.path()).await, Segments::default());
    segments.lock().is_closed = true;
    let mut first = scene.start(job(&scene, &segments));
    scene.resolve(&first, 300, 2).await;
    for piece in files(&folder.path().join("pieces")) {
        std::fs::remove_file(piece).unwrap();
    }
    // The last notification may still be under way, and end the job before this one is asked for.
    first.trigger_checkpoint().await.ok();
    let error = chain(&first.wait().await.unwrap_err());
    for part in
        ["sink \"segments\"", "of segment count/segments/", "with 150 records cannot be read", "is missing"]
    {
        assert!(error.contains(part), "{part} in {error}");
    }
    let again = scene.start(job(&scene, &segments).restarts(restarts(3))).wait().await.unwrap_err();
    assert!(chain(&again).contains("missing"), "{again:?}");
}

/// [TPL-06] [CHK-12] A savepoint's segments outlive the checkpoints that held them.
#[tokio::test]
async fn pieces_that_a_savepoint_names_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (scene, segments) = (scene_in(folder.path()).await, Segments::default());
    let mut first = scene.start(job(&scene, &segments));
    scene.reach(&first, 300, 2).await;
    let savepoint = first.savepoint().await.unwrap();
    for up_to in [400, 500, 600, 700] {
        scene.resolve(&first, up_to, 2).await;
    }
    scene.gate.raise(u64::MAX);
    first.wait().await.unwrap();
    assert!(!files(&folder.path().join("pieces")).is_empty());
    let again = Segments::default();
    let replay = job(&scene, &again).restore_from_savepoint(&savepoint.name).allow_replay();
    scene.finish(replay).await.unwrap();
    assert_eq!(again.visible(), all(), "what the savepoint held back, and what came after it");
}
