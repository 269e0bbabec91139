//! Readers that list and read the folder all the time.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use levada_core::template::TwoPhaseCommitSink;

use crate::scene::{CTX, Scene, batch, name, opened, visible};

const LINES: usize = 2000;

fn line(sequence: u64, at: usize) -> String {
    format!("{sequence} {at}")
}

/// [TPL-16] each file that is seen at all is whole, and no committed one goes missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_a_part_of_a_file_nor_one_that_is_not_committed() {
    const TRANSACTIONS: u64 = 60;
    let scene = Scene::new();
    let is_over = Arc::new(AtomicBool::new(false));
    let (folder, over) = (scene.folder().to_owned(), Arc::clone(&is_over));
    let reader = std::thread::spawn(move || {
        let (mut looks, mut most) = (0_u64, 0);
        while !over.load(Ordering::Relaxed) {
            let files = visible(&folder);
            assert!(files.len() >= most, "a file is gone");
            most = files.len();
            // The newest ones: they have just appeared.
            for path in files.iter().rev().take(3) {
                let text = fs::read_to_string(path).unwrap();
                let sequence: u64 = text.split_once(' ').unwrap().0.parse().unwrap();
                assert_eq!(sequence % 3, 0, "only every third was committed");
                assert!(
                    text.lines().eq((0..LINES).map(|at| line(sequence, at))),
                    "a part of {}",
                    path.display()
                );
            }
            looks += 1;
        }
        looks
    });
    let mut sink = opened(scene.config().buffer_bytes(1000)).await.unwrap();
    for sequence in 0..TRANSACTIONS {
        let mut handle = sink.begin(&name(1, sequence, 0)).await.unwrap();
        for half in [0..LINES / 2, LINES / 2..LINES] {
            let items = half.map(|at| line(sequence, at)).collect();
            sink.write(&mut handle, batch(items), &CTX).await.unwrap();
        }
        sink.pre_commit(&mut handle).await.unwrap();
        match sequence % 3 {
            0 => sink.commit(&handle).await.unwrap(),
            1 => sink.abort(&handle).await.unwrap(),
            _ => {}
        }
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 0);
    assert_eq!(scene.visible().len() as u64, TRANSACTIONS / 3);
}
