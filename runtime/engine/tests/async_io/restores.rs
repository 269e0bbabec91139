//! What a checkpoint holds of an async step, and what a start makes of it.

use levada_core::async_io::AsyncSettings;
use levada_engine::CheckpointedHandle;

use crate::scene::{Scene, Settings, sorted, until_all_rest};
use crate::scripted::promptly;

fn patient(capacity: usize) -> Settings {
    AsyncSettings::new().no_timeout().ordered().capacity(capacity)
}

/// [ASY-08] capacity 3 with one waiting, then 6 with two new ones, then 1: what was in flight is called again first, in order, and
/// never more at once than there is room for.
#[tokio::test(start_paused = true)]
async fn restored_inputs_are_called_first_in_order_whatever_the_new_capacity() {
    let scene = Scene::new().await;
    let job = scene.start(patient(3));
    scene.emit(4);
    scene.oracle.until_called(&[0, 1, 2]).await;
    // Done or not: the first holds it up.
    scene.oracle.answer_well(1);
    scene.leave_off(job).await;

    let job = scene.start(patient(6));
    scene.oracle.until_called(&[0, 1, 2, 3]).await;
    scene.emit(8);
    scene.oracle.until_called(&[0, 1, 2, 3, 4, 5]).await;
    scene.oracle.answer_well(0);
    scene.sink.until(&[0]).await;
    scene.oracle.until_called(&[0, 1, 2, 3, 4, 5, 6]).await;
    scene.leave_off(job).await;

    let mut job = scene.start(patient(1));
    scene.emit(9);
    for input in 1..9 {
        scene.oracle.until_called(&(1..=input).collect::<Vec<_>>()).await;
        scene.oracle.answer_well(input);
    }
    scene.sink.until(&[10, 20, 30, 40, 50, 60, 70, 80]).await;
    promptly(job.stop()).await.unwrap();
    promptly(job.wait()).await.unwrap();
}

/// [ASY-09] [ASY-08] a call that is stuck, with a full queue and full channels behind it, holds up no checkpoint; what waits for a
/// slot is in it.
#[tokio::test(start_paused = true)]
async fn stuck_call_with_a_full_queue_holds_up_no_checkpoint() {
    let scene = Scene::new().await;
    let mut job = scene.start(patient(2));
    scene.emit(40);
    scene.oracle.until_called(&[0, 1]).await;
    for _ in 0..3 {
        promptly(job.trigger_checkpoint()).await.unwrap();
    }
    assert_eq!(scene.oracle.called(), [0, 1]);
    let calls = &job.calls().snapshot()[0].metrics;
    assert_eq!((calls.in_flight, calls.in_queue), (2, 2));
    scene.oracle.answers_from(0);
    job.cancel();
    promptly(job.wait()).await.unwrap_err();
    scene.oracle.forget();

    let _job = scene.start(patient(2));
    scene.sink.until(&(0..40).map(|number| number * 10).collect::<Vec<_>>()).await;
    assert_eq!(scene.oracle.called(), (0..40).collect::<Vec<_>>(), "each once, the restored ones first");
}

/// [ASY-08] [ASY-09] however many checkpoints pass by a call that is stuck: what they hold is bounded, and the source goes on behind it.
#[tokio::test(start_paused = true)]
async fn checkpoints_that_pass_a_stuck_call_hold_no_more_and_more() {
    let scene = Scene::new().await;
    let job = scene.start(patient(2));
    scene.emit(1000);
    scene.oracle.until_called(&[0, 1]).await;
    let mut waiting = Vec::new();
    for _ in 0..6 {
        promptly(job.trigger_checkpoint()).await.unwrap();
        until_all_rest().await;
        waiting.push(job.calls().snapshot()[0].metrics.waiting);
    }
    let all_but_the_first_two = &waiting[2..];
    assert!(0 < waiting[0] && all_but_the_first_two.iter().all(|held| *held == waiting[1]), "{waiting:?}");
    scene.oracle.answers_from(2);
    scene.oracle.answer_well(0);
    scene.oracle.answer_well(1);
    scene.sink.until(&(0..1000).map(|number| number * 10).collect::<Vec<_>>()).await;
}

/// [ASY-08] the subtask of a call that is stuck makes its own source wait, and no other one: whatever is dealt out behind it or
/// beside it.
#[tokio::test(start_paused = true)]
async fn call_that_is_stuck_makes_the_source_of_its_own_subtask_wait() {
    for job in [Scene::job, Scene::keyed_job, Scene::copied_job] {
        let scene = Scene::new().await;
        let job = job(&scene, 2, patient(2)).start(scene.store.clone()).unwrap();
        other_source_reads_on(&scene, &job).await;
    }
}

async fn other_source_reads_on(scene: &Scene, job: &CheckpointedHandle) {
    scene.emit(4);
    scene.oracle.until(|called| called.len() == 4).await;
    scene.oracle.answers_from(1);
    for odd in [1, 3] {
        scene.oracle.answer_well(odd);
    }
    scene.emit(100);
    for _ in 0..3 {
        promptly(job.trigger_checkpoint()).await.unwrap();
    }
    scene.emit(1000);
    let mut seen = scene.sink.seen.subscribe();
    promptly(seen.wait_for(|seen| seen.len() == 500)).await.unwrap();
    assert!(scene.sink.outputs().iter().all(|output| output % 20 == 10));
}

/// [ASY-08] inputs that are stored are dealt out to however many subtasks there are: each is called by one.
#[tokio::test(start_paused = true)]
async fn restored_inputs_are_dealt_out_to_another_parallelism() {
    let scene = Scene::new().await;
    let mut parallelism = 2;
    scene.emit(30);
    for next in [3, 1] {
        let mut job = scene.job(parallelism, patient(4)).start(scene.store.clone()).unwrap();
        // Those of one split are one subtask's, and all that is held is of the first two.
        scene.oracle.until(|called| called.len() == 8).await;
        promptly(job.trigger_checkpoint()).await.unwrap();
        job.cancel();
        promptly(job.wait()).await.unwrap_err();
        scene.oracle.forget();
        parallelism = next;
    }
    scene.oracle.answers_from(0);
    let _job = scene.job(parallelism, patient(4)).start(scene.store.clone()).unwrap();
    scene.oracle.until(|called| called.len() == 30).await;
    assert_eq!(sorted(scene.oracle.called()), (0..30).collect::<Vec<_>>());
    let mut seen = scene.sink.seen.subscribe();
    promptly(seen.wait_for(|seen| seen.len() == 30)).await.unwrap();
    assert_eq!(sorted(scene.sink.outputs()), (0..30).map(|number| number * 10).collect::<Vec<_>>());
}

/// [ASY-08] [ASY-02] [ASY-04] with another number of subtasks, too: a source goes on in any of them, and nothing new is called
/// before all that was held has left. So of each of the source's ways, every output comes behind those before it.
#[tokio::test(start_paused = true)]
async fn restored_inputs_are_not_overtaken_at_another_parallelism() {
    let key_ordered = || patient(2).key_ordered_by(|number: &u64| number % 6);
    for settings in [|| patient(2), key_ordered] {
        let scene = Scene::new().await;
        scene.emit(12);
        let mut job = scene.job(2, settings().capacity(12)).start(scene.store.clone()).unwrap();
        scene.oracle.until(|called| called.len() == 12).await;
        promptly(job.trigger_checkpoint()).await.unwrap();
        job.cancel();
        promptly(job.wait()).await.unwrap_err();
        scene.oracle.forget();

        scene.emit(48);
        let mut job = scene.job(3, settings()).start(scene.store.clone()).unwrap();
        for answered in 0..12 {
            scene.oracle.until(|called| called.len() > answered).await;
            until_all_rest().await;
            let called = scene.oracle.called();
            assert!(called.iter().all(|number| *number < 12), "what was held comes first: {called:?}");
            scene.oracle.answer_well(called[answered]);
        }
        scene.oracle.answers_from(0);
        let mut seen = scene.sink.seen.subscribe();
        promptly(seen.wait_for(|seen| seen.len() == 48)).await.unwrap();
        for way in 0..6 {
            let mut outputs = scene.sink.outputs();
            outputs.retain(|output| output / 10 % 6 == way);
            assert!(outputs.len() == 8 && outputs.is_sorted(), "{outputs:?}");
        }
        promptly(job.stop()).await.unwrap();
        promptly(job.wait()).await.unwrap();
    }
}

/// [ASY-09] [ASY-08] while it waits for a call that is stuck, the source lets checkpoints pass.
#[tokio::test(start_paused = true)]
async fn source_that_waits_for_restored_inputs_holds_up_no_checkpoint() {
    let scene = Scene::new().await;
    scene.emit(4);
    let job = scene.job(2, patient(4)).start(scene.store.clone()).unwrap();
    scene.oracle.until(|called| called.len() == 4).await;
    scene.leave_off(job).await;

    // The third time it waits as well: they have not left since they moved.
    for parallelism in [1, 3, 3] {
        let job = scene.job(parallelism, patient(4)).start(scene.store.clone()).unwrap();
        scene.emit(8);
        scene.oracle.until(|called| called.len() == 4).await;
        promptly(job.trigger_checkpoint()).await.unwrap();
        until_all_rest().await;
        assert_eq!(sorted(scene.oracle.called()), [0, 1, 2, 3]);
        scene.leave_off(job).await;
    }
    scene.oracle.answers_from(0);
    let _job = scene.job(2, patient(4)).start(scene.store.clone()).unwrap();
    let mut seen = scene.sink.seen.subscribe();
    promptly(seen.wait_for(|seen| seen.len() == 8)).await.unwrap();
    assert_eq!(sorted(scene.sink.outputs()), (0..8).map(|number| number * 10).collect::<Vec<_>>());
}
