//! Markers in files.

use std::fs;
use std::path::Path;

use levada_core::template::{CheckpointCommitter, Marker};
use levada_core::{CheckpointId, ErrorClass, SinkContext};
use levada_engine::driver::FileCommitter;
use tempfile::TempDir;

use crate::scripted::id;

fn marker(job: &str, subtask: u32, checkpoint: CheckpointId) -> Marker {
    Marker { job: job.to_owned(), uid: String::from("sink"), subtask, checkpoint }
}

async fn opened(folder: &Path, subtask: u32) -> FileCommitter {
    let mut committer = FileCommitter::new(folder);
    let ctx = SinkContext { job: String::from("another name now"), subtask, parallelism: 2 };
    committer.open(&ctx).await.unwrap();
    committer
}

async fn is_committed(committer: &mut FileCommitter, marker: &Marker) -> bool {
    committer.is_committed(marker).await.unwrap()
}

/// [TPL-07]
#[tokio::test]
async fn a_marker_outlives_the_process_and_stands_for_itself_alone() {
    let folder = TempDir::new().unwrap();
    let first = marker("job", 0, id(2));
    let mut committer = opened(folder.path(), 0).await;
    assert!(!is_committed(&mut committer, &first).await);
    committer.commit(&first).await.unwrap();
    assert!(is_committed(&mut committer, &first).await);

    let mut later = opened(folder.path(), 0).await;
    assert!(is_committed(&mut later, &first).await);
    for other in [marker("job", 0, id(1)), marker("job", 1, id(2)), marker("j", 0, id(2))] {
        assert!(!is_committed(&mut later, &other).await, "{other}");
    }
}

/// [TPL-07] [TPL-08] After a change of parallelism two subtasks send segments of one; neither file is lost to the other.
#[tokio::test]
async fn two_subtasks_commit_markers_of_the_same_series() {
    let folder = TempDir::new().unwrap();
    let markers = [1, 2, 3, 4].map(|sequence| marker("job", 0, id(sequence)));
    let (mut even, mut odd) = (opened(folder.path(), 0).await, opened(folder.path(), 1).await);
    for (index, marker) in markers.iter().enumerate() {
        let committer = if index % 2 == 0 { &mut even } else { &mut odd };
        assert!(!is_committed(committer, marker).await);
        committer.commit(marker).await.unwrap();
    }
    for subtask in 0..3 {
        let mut later = opened(folder.path(), subtask).await;
        for marker in &markers {
            assert!(is_committed(&mut later, marker).await, "{marker} as seen by {subtask}");
        }
    }
}

/// [TPL-07] A crash before the rename leaves a file that counts for nothing.
#[tokio::test]
async fn an_unfinished_file_is_passed_over_and_written_over() {
    let folder = TempDir::new().unwrap();
    let mut committer = opened(folder.path(), 0).await;
    committer.commit(&marker("job", 0, id(1))).await.unwrap();
    let unfinished = folder.path().join("job/sink/0.by-0.new");
    fs::write(&unfinished, "levada markers 1\n1-1\n1-").unwrap();

    let mut later = opened(folder.path(), 0).await;
    assert!(is_committed(&mut later, &marker("job", 0, id(1))).await);
    assert!(!is_committed(&mut later, &marker("job", 0, id(2))).await);
    later.commit(&marker("job", 0, id(2))).await.unwrap();
    assert!(!unfinished.exists());
    let text = fs::read_to_string(folder.path().join("job/sink/0.by-0")).unwrap();
    assert_eq!(text, "levada markers 1\n1-1\n1-2\nend 2\n");
}

async fn fenced(folder: &Path, subtask: u32, first: CheckpointId) -> FileCommitter {
    let mut committer = opened(folder, subtask).await;
    committer.fence("sink", first).await.unwrap();
    committer
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("job/sink")).unwrap();
    let mut names =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>();
    names.sort();
    names
}

/// [TPL-07] Also those of an earlier version, which name no opening, and what a crash has left unfinished.
#[tokio::test]
async fn a_later_opening_takes_over_the_files_of_earlier_ones() {
    let folder = TempDir::new().unwrap();
    opened(folder.path(), 0).await.commit(&marker("job", 0, id(1))).await.unwrap();
    fenced(folder.path(), 1, CheckpointId::new(9, 1)).await.commit(&marker("job", 0, id(2))).await.unwrap();
    fenced(folder.path(), 0, CheckpointId::new(9, 2)).await.commit(&marker("job", 0, id(3))).await.unwrap();
    assert_eq!(files(folder.path()), ["0.by-0.from-9-2", "0.by-1.from-9-1"]);
    fs::write(folder.path().join("job/sink/0.by-0.from-9-5.new"), "levada").unwrap();

    let mut later = fenced(folder.path(), 0, CheckpointId::new(10, 1)).await;
    later.commit(&marker("job", 0, id(4))).await.unwrap();
    assert_eq!(files(folder.path()), ["0.by-0.from-10-1", "0.by-1.from-9-1"]);
    let mut last = fenced(folder.path(), 0, CheckpointId::new(11, 1)).await;
    for sequence in 1..=4 {
        assert!(is_committed(&mut last, &marker("job", 0, id(sequence))).await, "{sequence}");
    }
}

/// [TPL-07] Wherever a file was cut: never a marker more or less than was written.
#[tokio::test]
async fn a_file_cut_anywhere_is_an_error() {
    let folder = TempDir::new().unwrap();
    let mut committer = opened(folder.path(), 0).await;
    for sequence in [1, 12] {
        committer.commit(&marker("job", 0, id(sequence))).await.unwrap();
    }
    let path = folder.path().join("job/sink/0.by-0");
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let mut later = opened(folder.path(), 0).await;
        let error = later.is_committed(&marker("job", 0, id(1))).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Fatal, "cut at {length}");
    }
}

/// [TPL-19]
#[tokio::test]
async fn version_1_of_a_marker_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a%20job/sink");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("3.by-0"), include_str!("../golden/marker_file_v1.txt")).unwrap();
    let mut committer = opened(folder.path(), 0).await;
    let of = |attempt, sequence| marker("a job", 3, CheckpointId::new(attempt, sequence));
    for (checkpoint, is_there) in [(of(4, 17), true), (of(5, 1), true), (of(4, 18), false)] {
        assert_eq!(is_committed(&mut committer, &checkpoint).await, is_there, "{checkpoint}");
    }
}

/// [TPL-07]
#[tokio::test]
async fn forgotten_markers_leave_the_file_with_the_next_commit() {
    let folder = TempDir::new().unwrap();
    let mut committer = opened(folder.path(), 0).await;
    for sequence in 1..=3 {
        committer.commit(&marker("job", 0, id(sequence))).await.unwrap();
    }
    committer.forget(&[marker("job", 0, id(1)), marker("job", 0, id(2))]).await.unwrap();
    committer.commit(&marker("job", 0, id(4))).await.unwrap();
    let text = fs::read_to_string(folder.path().join("job/sink/0.by-0")).unwrap();
    assert_eq!(text, "levada markers 1\n1-3\n1-4\nend 2\n");
}

/// [TPL-07] A job's name is no path.
#[tokio::test]
async fn names_cannot_leave_the_folder_nor_meet_in_it() {
    let folder = TempDir::new().unwrap();
    let mut committer = opened(folder.path(), 0).await;
    let names = ["..", "", "a/b", "a%2fb", "a b", "ä", "."];
    for (index, name) in names.iter().enumerate() {
        committer.commit(&marker(name, 0, id(index as u64))).await.unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), names.len());
    let mut later = opened(folder.path(), 0).await;
    for (index, name) in names.iter().enumerate() {
        for (other, _) in names.iter().enumerate() {
            let found = is_committed(&mut later, &marker(name, 0, id(other as u64))).await;
            assert_eq!(found, index == other);
        }
    }
}

/// [TPL-07] The folder may be made while the job runs, or be away: that is no reason to give up.
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_worth_another_try() {
    let folder = TempDir::new().unwrap();
    let blocked = folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let mut committer = opened(&blocked.join("below"), 0).await;
    let error = committer.commit(&marker("job", 0, id(1))).await.unwrap_err();
    assert!(error.class.is_retriable());
    fs::remove_file(&blocked).unwrap();
    committer.commit(&marker("job", 0, id(1))).await.unwrap();
}
