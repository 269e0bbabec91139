//! What earlier attempts have left, and those of them that still run.

use std::fs;

use levada_core::template::TwoPhaseCommitSink;
use levada_core::{CheckpointId, ErrorClass};
use levada_files::{FileSink, FileSinkConfig};

use crate::scene::{ALL_EARLIER, CTX, Scene, context, lines, name, opened, pre_committed};

/// [TPL-16] only what is ours and in no handle.
#[tokio::test]
async fn a_fence_removes_what_is_ours_and_what_no_handle_names() {
    let scene = Scene::new();
    let mut earlier = scene.sink().await;
    let kept = pre_committed(&mut earlier, name(1, 1, 0), &["a"]).await;
    pre_committed(&mut earlier, name(1, 2, 3), &["b"]).await;
    earlier.begin(&name(1, 3, 0)).await.unwrap();

    let mut other_sink = opened(FileSinkConfig::new(scene.folder(), "other")).await.unwrap();
    let other_sinks = other_sink.begin(&name(1, 1, 0)).await.unwrap();
    let mut other_job = FileSink::<String>::new(scene.config());
    other_job.open(context("job.out", 0)).await.unwrap();
    let other_jobs = other_job.begin(&name(1, 1, 0)).await.unwrap();
    let note = scene.folder().join(".pending/note");
    fs::write(&note, "").unwrap();

    let mut later = scene.sink().await;
    later.fence(ALL_EARLIER, std::slice::from_ref(&kept)).await.unwrap();
    let mut left = [kept.pending(), other_sinks.pending(), other_jobs.pending(), note];
    left.sort();
    assert_eq!(scene.waiting(), left);
    later.commit(&kept).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16] subtasks of one run fence one after the other, and some have begun by then.
#[tokio::test]
async fn a_fence_leaves_what_another_subtask_of_the_run_is_at() {
    let scene = Scene::new();
    let config = scene.config();
    let mut first = opened(config.clone()).await.unwrap();
    let mut second = opened(config.clone()).await.unwrap();
    let mut open = first.begin(&name(2, 1, 0)).await.unwrap();
    second.fence(ALL_EARLIER, &[]).await.unwrap();
    first.write(&mut open, lines(&["a"]), &CTX).await.unwrap();
    first.pre_commit(&mut open).await.unwrap();
    second.fence(ALL_EARLIER, &[]).await.unwrap();
    first.commit(&open).await.unwrap();
    assert_eq!(scene.text(), "a\n");

    // A restart in the same process: what the dropped sink had begun is a left-over then.
    pre_committed(&mut first, name(2, 2, 0), &["b"]).await;
    first.begin(&name(2, 3, 0)).await.unwrap();
    drop(first);
    second.fence(ALL_EARLIER, &[]).await.unwrap();
    assert_eq!(scene.waiting().len(), 0);
}

/// [TPL-12] [TPL-16] a start that stood still just before its fence, and wakes up behind a takeover.
#[tokio::test]
async fn a_woken_attempts_fence_leaves_what_a_later_one_has_begun() {
    let scene = Scene::new();
    let mut earlier = scene.sink().await;
    let refused = pre_committed(&mut earlier, name(8, 3, 0), &["refused"]).await;
    let mut woken = scene.sink().await;
    let mut later = scene.sink().await;
    let complete = pre_committed(&mut later, name(10, 1, 0), &["a"]).await;
    let open = later.begin(&name(10, 2, 0)).await.unwrap();

    woken.fence(CheckpointId::new(9, 1), &[]).await.unwrap();
    assert_eq!(scene.waiting(), [complete.pending(), open.pending()]);
    assert!(!refused.pending().exists());
    scene.sink().await.commit(&complete).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16] a process that was taken for dead.
#[tokio::test]
async fn an_earlier_attempt_that_still_runs_notices_the_takeover_and_publishes_nothing() {
    let scene = Scene::new();
    let mut zombie = scene.sink().await;
    let mut open = zombie.begin(&name(1, 2, 0)).await.unwrap();
    zombie.write(&mut open, lines(&["a"]), &CTX).await.unwrap();

    let mut later = scene.sink().await;
    later.fence(ALL_EARLIER, &[]).await.unwrap();
    let again = pre_committed(&mut later, name(2, 1, 0), &["a"]).await;
    later.commit(&again).await.unwrap();

    zombie.write(&mut open, lines(&["b"]), &CTX).await.unwrap();
    let error = zombie.pre_commit(&mut open).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Fenced);
    assert!(zombie.commit(&open).await.is_err());
    zombie.abort(&open).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16] one pre-committed, by a checkpoint that was refused: it is gone before it could be published.
#[tokio::test]
async fn an_earlier_attempts_late_commit_finds_nothing_to_publish() {
    let scene = Scene::new();
    let mut zombie = scene.sink().await;
    let refused = pre_committed(&mut zombie, name(1, 2, 0), &["a"]).await;
    scene.sink().await.fence(ALL_EARLIER, &[]).await.unwrap();
    assert!(zombie.commit(&refused).await.unwrap_err().to_string().contains("is lost"));
    assert_eq!(scene.visible().len(), 0);
}

/// [TPL-16] both attempts commit what the last complete checkpoint names: it is the same file.
#[tokio::test]
async fn an_earlier_attempts_late_commit_of_a_complete_checkpoint_doubles_nothing() {
    let scene = Scene::new();
    let mut zombie = scene.sink().await;
    let complete = pre_committed(&mut zombie, name(1, 1, 0), &["a"]).await;
    let mut later = scene.sink().await;
    later.commit(&complete).await.unwrap();
    later.fence(ALL_EARLIER, &[]).await.unwrap();
    zombie.commit(&complete).await.unwrap();
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16] Names with quotes, slashes, dots, line ends and other alphabets stay in the folder, and a job's fence knows its own
/// files only.
#[tokio::test]
async fn jobs_and_sinks_with_odd_names_keep_to_their_own_files_in_the_folder() {
    let scene = Scene::new();
    let odd = ["a'b\"c", "../../a", "a/b", "a%2Fb", "a\nb", "..", "Überfälle 航班", "a.out", "a", "A"];
    let mut kept = Vec::new();
    for job in odd {
        for uid in odd {
            let mut sink = FileSink::<String>::new(FileSinkConfig::new(scene.folder(), uid));
            sink.open(context(job, 0)).await.unwrap();
            kept.push(pre_committed(&mut sink, name(1, 1, 0), &["a"]).await);
        }
    }
    let folder = scene.folder();
    assert!(kept.iter().all(|handle| handle.pending().parent() == Some(&folder.join(".pending"))));
    assert_eq!(scene.waiting().len(), kept.len(), "no two have one name");
    let mut left = kept.len();
    for job in odd {
        for uid in odd {
            let mut sink = FileSink::<String>::new(FileSinkConfig::new(scene.folder(), uid));
            sink.open(context(job, 0)).await.unwrap();
            sink.fence(ALL_EARLIER, &[]).await.unwrap();
            left -= 1;
            assert_eq!(scene.waiting().len(), left, "{job:?}, {uid:?}");
        }
    }
}
