//! A crash after each step: everything is dropped, and a new sink goes on from the stored handle alone.

use std::fs;

use levada_core::template::TwoPhaseCommitSink;
use levada_files::FileHandle;

use crate::scene::{ALL_EARLIER, CTX, Scene, lines, name, pre_committed};

/// What a restart does with what the last checkpoint names.
async fn restarted(scene: &Scene, pending: &[FileHandle]) {
    let mut sink = scene.sink().await;
    for handle in pending {
        sink.commit(handle).await.unwrap();
    }
    sink.fence(ALL_EARLIER, &[]).await.unwrap();
}

/// [TPL-10] [TPL-16]
#[tokio::test]
async fn a_crash_before_the_pre_commit_leaves_nothing() {
    for has_written in [false, true] {
        let scene = Scene::new();
        let mut sink = scene.sink().await;
        let mut handle = sink.begin(&name(1, 1, 0)).await.unwrap();
        if has_written {
            sink.write(&mut handle, lines(&["a"]), &CTX).await.unwrap();
        }
        drop(sink);
        restarted(&scene, &[]).await;
        assert_eq!((scene.visible().len(), scene.waiting().len()), (0, 0));
    }
}

/// [TPL-10] pre-committed, and its checkpoint is not complete: the records come again, under another name.
#[tokio::test]
async fn a_crash_before_the_checkpoint_is_complete_drops_the_transaction() {
    let scene = Scene::new();
    pre_committed(&mut scene.sink().await, name(1, 1, 0), &["a"]).await;
    restarted(&scene, &[]).await;
    let again = pre_committed(&mut scene.sink().await, name(2, 1, 0), &["a"]).await;
    restarted(&scene, &[again]).await;
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-10] [TPL-16]
#[tokio::test]
async fn a_crash_after_the_pre_commit_is_followed_by_the_commit() {
    let scene = Scene::new();
    let handle = pre_committed(&mut scene.sink().await, name(1, 1, 0), &["a"]).await;
    restarted(&scene, std::slice::from_ref(&handle)).await;
    assert_eq!(scene.text(), "a\n");
    restarted(&scene, &[handle]).await;
    assert_eq!(scene.text(), "a\n");
}

/// [TPL-16]
#[tokio::test]
async fn a_crash_between_the_two_names_leaves_one_file() {
    let scene = Scene::new();
    let handle = pre_committed(&mut scene.sink().await, name(1, 1, 0), &["a"]).await;
    fs::hard_link(handle.pending(), handle.target()).unwrap();
    restarted(&scene, &[handle]).await;
    assert_eq!(scene.text(), "a\n");
    assert_eq!(scene.waiting().len(), 0);
}

/// [TPL-12] several entries after a scale-in, of other subtasks.
#[tokio::test]
async fn one_subtask_commits_what_several_have_left() {
    let scene = Scene::new();
    let mut handles = Vec::new();
    for subtask in 0..3 {
        handles.push(pre_committed(&mut scene.sink().await, name(1, 1, subtask), &["a"]).await);
    }
    restarted(&scene, &handles).await;
    assert_eq!(scene.text(), "a\na\na\n");
}
