//! Jobs with checkpoints, stopped and broken at fail points. In a binary of its own, because fail points are the whole
//! process's.

#[allow(dead_code)]
#[path = "../checkpointed/scene.rs"]
mod scene;
#[allow(dead_code)]
#[path = "../checkpointed/target.rs"]
mod target;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use fail::FailScenario;
use levada_engine::{JobError, RECOVERY_FAIL_POINTS};
use tokio::sync::Notify;

use crate::scene::{Scene, all};
use crate::target::Phase;

/// What the start finds in the target.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// Everything waits.
    Waiting,
    /// Everything is gone.
    Gone,
}

/// Lets whoever passes the point die there.
fn die_at(point: &'static str) -> Arc<AtomicBool> {
    let passed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&passed);
    fail::cfg_callback(point, move || {
        flag.store(true, Ordering::SeqCst);
        std::panic::panic_any("crash");
    })
    .unwrap();
    passed
}

/// [TPL-12] [CHK-19] A start that dies at any of its steps, twice, is followed by one that goes on from there.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_dies_at_any_step_is_followed_by_one_that_finishes_it() {
    let scenario = FailScenario::setup();
    let mut reached = BTreeSet::new();
    for found in [Found::Waiting, Found::Gone] {
        for point in RECOVERY_FAIL_POINTS {
            let scene = Scene::new().await;
            let (_, _, waiting) = scene.with_pending().await;
            if matches!(found, Found::Gone) {
                scene.target.expire(&waiting);
            }
            let passed = die_at(point);
            for _ in 0..2 {
                // Of a process that died the lease stands; here its process lives, so it is taken.
                let outcome = scene.finish(scene.job(2).take_over()).await;
                let has_died = passed.swap(false, Ordering::SeqCst);
                assert_eq!(
                    has_died,
                    matches!(outcome, Err(JobError::Panicked { .. })),
                    "{point}: {outcome:?}"
                );
                if has_died {
                    reached.insert(*point);
                }
            }
            fail::remove(*point);
            scene.finish(scene.job(3).take_over()).await.unwrap();
            assert_eq!(scene.target.visible(), all(), "{found:?}, death at {point}");
            assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0], "{found:?}, death at {point}");
            assert_eq!(scene.target.in_phase(Phase::Open), [""; 0], "{found:?}, death at {point}");
        }
    }
    assert_eq!(reached, RECOVERY_FAIL_POINTS.iter().copied().collect(), "every step was died at");
    scenario.teardown();
}

/// [TPL-12] Once it is noted, a roll-back is carried out, even if the target says later that all could be committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_noted_roll_back_is_not_decided_again() {
    let scenario = FailScenario::setup();
    let scene = Scene::new().await;
    let (_, _, waiting) = scene.with_pending().await;
    scene.target.expire(&waiting[..1]);
    let passed = die_at("recovery::after_note");
    scene.finish(scene.job(2).take_over()).await.unwrap_err();
    assert!(passed.load(Ordering::SeqCst));
    fail::remove("recovery::after_note");
    scene.target.lock().transactions.get_mut(&waiting[0]).unwrap().phase = Phase::PreCommitted;
    scene.finish(scene.job(2).take_over()).await.unwrap();
    assert_eq!(scene.target.visible(), all());
    assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
    scenario.teardown();
}

/// [TPL-12] Somebody has committed what was to be dropped: that would be doubled, so the job stops.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_visible_while_it_is_rolled_back_stops_the_job() {
    let scenario = FailScenario::setup();
    let scene = Scene::new().await;
    let (_, second, waiting) = scene.with_pending().await;
    scene.target.expire(&waiting[..1]);
    die_at("recovery::after_note");
    scene.finish(scene.job(2).take_over()).await.unwrap_err();
    fail::remove("recovery::after_note");
    scene.target.commit(&waiting[1]);
    let error = scene.finish(scene.job(2).take_over()).await.unwrap_err();
    let text = scene::chain(&error);
    assert!(text.contains(&format!("checkpoint {second} is rolled back, and yet")), "{text}");
    assert!(text.contains(&waiting[1]), "{text}");
    scenario.teardown();
}

/// Holds the first that passes a point until the returned sender is dropped, and lets all others pass.
fn hold_first_at(point: &'static str) -> (Arc<Notify>, mpsc::Sender<()>) {
    let held = Arc::new(Notify::new());
    let (release, wait) = mpsc::channel::<()>();
    let (wait, notify) = (Mutex::new(Some(wait)), Arc::clone(&held));
    fail::cfg_callback(point, move || {
        let Some(wait) = wait.lock().unwrap().take() else { return };
        notify.notify_one();
        // Until the sender is gone.
        let _ = wait.recv();
    })
    .unwrap();
    (held, release)
}

/// [TPL-12] [CHK-15] A start stands still between its last look at the lease and its fence, is taken over, and wakes up when the
/// later attempt has pre-committed for a complete checkpoint: it ends itself, and what waits still waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_wakes_up_behind_a_takeover_fences_nothing_of_the_later_attempt() {
    let scenario = FailScenario::setup();
    let scene = Scene::new().await;
    let (held, release) = hold_first_at("recovery::before_fence");
    let mut woken = scene.start(scene.job(2));
    held.notified().await;

    let mut later = scene.start(scene.job(2).take_over());
    scene.resolve(&later, 300, 2).await;
    scene.target.set_away(true);
    scene.reach(&later, 600, 2).await;
    later.trigger_checkpoint().await.unwrap();
    later.wait().await.unwrap_err();
    scene.target.set_away(false);
    let waiting = scene.target.in_phase(Phase::PreCommitted);
    assert!(!waiting.is_empty());

    scene.target.take_calls();
    drop(release);
    // It may be reading by then; with its next checkpoint it finds out.
    woken.trigger_checkpoint().await.ok();
    let error = woken.wait().await.unwrap_err();
    assert!(matches!(&error, JobError::Store(cause) if cause.is_taken_over()), "{error:?}");
    assert!(scene.target.take_calls().iter().any(|call| call.starts_with("fence")), "it has fenced");
    // Beside what it has pre-committed itself.
    let still_waiting = scene.target.in_phase(Phase::PreCommitted);
    assert!(waiting.iter().all(|handle| still_waiting.contains(handle)), "{waiting:?}, {still_waiting:?}");
    scene.finish(scene.job(2).take_over()).await.unwrap();
    assert_eq!(scene.target.visible(), all());
    scenario.teardown();
}

/// Pauses a job before it writes the entry of a checkpoint of 600 numbers that all tasks have acked; another takes over,
/// goes on from the one of 300 and comes to its end; then the first goes on. Returns what it came to.
async fn overtaken_before_its_entry(scene: &Scene, is_conditional: bool) -> Result<(), JobError> {
    let mut old = scene.start(scene.job(2));
    scene.resolve(&old, 300, 2).await;
    scene.reach(&old, 600, 2).await;
    let (held, release) = hold_first_at("store::entry::before");
    let mut trigger = Box::pin(old.trigger_checkpoint());
    tokio::select! {
        () = held.notified() => {}
        outcome = &mut trigger => panic!("it was not held: {outcome:?}"),
    }
    let new = scene.finish(scene.job(2).take_over()).await;
    new.unwrap();
    assert_eq!(scene.target.visible(), all());
    if !is_conditional {
        fail::cfg("store::without_condition", "return").unwrap();
    }
    drop(release);
    fail::remove("store::entry::before");
    let triggered = trigger.await;
    let outcome = match triggered {
        Ok(_) => {
            // Its tasks have heard of it once the next one is through.
            old.trigger_checkpoint().await.ok();
            Ok(())
        }
        Err(_) => old.wait().await.map(drop),
    };
    fail::remove("store::without_condition");
    outcome
}

/// [CHK-15] With the condition, an attempt that was taken over finishes nothing. The counter-test: without it, what the
/// target does not fence itself becomes visible twice.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_condition_keeps_an_old_attempt_from_publishing_after_a_takeover() {
    let scenario = FailScenario::setup();
    for is_conditional in [true, false] {
        let scene = Scene::new().await;
        // A target that fences nobody: the store alone must hold the old attempt back.
        scene.target.lock().is_simple = true;
        let outcome = overtaken_before_its_entry(&scene, is_conditional).await;
        match is_conditional {
            true => {
                let error = outcome.unwrap_err();
                assert!(matches!(&error, JobError::Store(cause) if cause.is_taken_over()), "{error:?}");
                assert_eq!(scene.target.visible(), all());
            }
            false => {
                outcome.unwrap();
                let visible = scene.target.visible();
                let doubled = visible.iter().filter(|number| (300..600).contains(*number)).count();
                assert_eq!(doubled, 600, "each of them is there twice");
            }
        }
    }
    scenario.teardown();
}
