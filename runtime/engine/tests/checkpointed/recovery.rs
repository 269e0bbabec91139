//! [TPL-12] What is done once at each start, before any subtask opens.

use levada_core::CheckpointId;
use levada_engine::driver::LossPolicy;
use levada_engine::store::{RestoreFrom, Row};
use levada_engine::{JobError, RecoveryError};

use crate::scene::{END, Scene, all, chain, restarts, up_to};
use crate::target::Phase;

/// Which calls came first, by their verbs.
fn verbs(calls: &[String]) -> Vec<&str> {
    calls.iter().map(|call| call.split(' ').next().unwrap()).collect()
}

fn calls_of<'a>(calls: &'a [String], verb: &str) -> Vec<&'a String> {
    calls.iter().filter(|call| call.starts_with(verb)).collect()
}

async fn roll_backs(scene: &Scene) -> Vec<Option<CheckpointId>> {
    let rows = scene.store.list().await.unwrap().rows;
    let noted = rows.iter().filter_map(|row| match row {
        Row::RolledBack { to, .. } => Some(*to),
        _ => None,
    });
    noted.collect()
}

/// [TPL-12] [TPL-13] Inspected once for the whole job, fenced with every handle kept, and only then opened and committed.
#[tokio::test]
async fn what_waits_is_inspected_and_fenced_once_before_any_subtask_opens() {
    let scene = Scene::new().await;
    let (_, _, waiting) = scene.with_pending().await;
    assert!(waiting.len() >= 2, "{waiting:?}");
    let mut job = scene.start(scene.job(4));
    job.trigger_checkpoint().await.unwrap();
    let calls = scene.target.take_calls();
    let start = verbs(&calls).into_iter().take(4 + 3 + waiting.len()).collect::<Vec<_>>();
    assert_eq!(start[..3], ["open", "inspect", "fence"], "{calls:?}");
    assert_eq!(calls[1..3], ["inspect", "fence"].map(|verb| format!("{verb} {}", waiting.join(" "))));
    assert_eq!(calls_of(&calls, "inspect").len(), 1);
    assert_eq!(scene.target.visible(), up_to(600));
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
    assert_eq!(roll_backs(&scene).await, []);
}

/// [TPL-12] Also without a checkpoint, and at each restart in the same process.
#[tokio::test]
async fn earlier_attempts_are_fenced_at_every_start() {
    let scene = Scene::new().await;
    *scene.gate.fail_at.lock().unwrap() = Some(200);
    scene.finish(scene.job(2).restarts(restarts(1))).await.unwrap();
    let calls = scene.target.take_calls();
    assert_eq!(calls_of(&calls, "fence"), ["fence ", "fence "]);
    assert_eq!(scene.target.in_phase(Phase::Open), [""; 0]);
    assert_eq!(scene.target.visible(), all());
}

/// [TPL-12] [CHK-08] Nothing of checkpoint n is visible and some of it gone: n − 1 is restored, and read on from there.
#[tokio::test]
async fn a_checkpoint_whose_transactions_are_gone_is_rolled_back_without_doubling() {
    for gone in [1, usize::MAX] {
        let scene = Scene::new().await;
        let (first, second, waiting) = scene.with_pending().await;
        scene.target.expire(&waiting[..gone.min(waiting.len())]);
        let report = scene.finish(scene.job(3)).await.unwrap();
        assert!(report.last > Some(second));
        assert_eq!(scene.target.visible(), all());
        assert_eq!(roll_backs(&scene).await, [Some(first)]);
        assert_eq!(scene.target.in_phase(Phase::PreCommitted), [""; 0]);
        assert_eq!(report.sinks["table"].lost, 0);
    }
}

/// [TPL-12] Neither committed nor dropped nor fenced: the error names everything, and what to do.
#[tokio::test]
async fn a_torn_checkpoint_stops_the_job_and_changes_nothing() {
    let scene = Scene::new().await;
    let (first, second, waiting) = scene.with_pending().await;
    scene.target.commit(&waiting[0]);
    scene.target.expire(&waiting[1..2]);
    for _ in 0..2 {
        let error = scene.finish(scene.job(2).restarts(restarts(5))).await.unwrap_err();
        let JobError::Recovery(cause) = &error else { panic!("{error:?}") };
        assert!(matches!(&**cause, RecoveryError::Torn { checkpoint, .. } if *checkpoint == second));
        let text = chain(&error);
        for part in [
            format!("checkpoint {second} is torn"),
            format!("{:?}", waiting[1]),
            format!("from checkpoint {first}"),
        ] {
            assert!(text.contains(&part), "{part} is not in: {text}");
        }
        assert!(text.contains("sink \"table\"") && text.contains("records of checkpoint"), "{text}");
        assert_eq!(
            verbs(&scene.target.take_calls()),
            ["open", "inspect"],
            "nothing is changed, nothing tried again"
        );
    }

    // What the error advises: the visible half is published again, and nothing is missing.
    let again = scene.job(2).restore_from(RestoreFrom::Checkpoint(first)).allow_replay();
    scene.finish(again).await.unwrap();
    let mut visible = scene.target.visible();
    assert!(visible.len() > END as usize);
    visible.dedup();
    assert_eq!(visible, all());
}

/// [TPL-13] Opted into, and counted.
#[tokio::test]
async fn a_torn_checkpoint_goes_on_without_what_is_gone_if_that_is_the_policy() {
    let scene = Scene::new().await;
    let (_, _, waiting) = scene.with_pending().await;
    let lost = scene.target.lock().transactions[&waiting[1]].numbers.clone();
    scene.target.commit(&waiting[0]);
    scene.target.expire(&waiting[1..2]);
    let report = scene.finish(scene.job_with(2, LossPolicy::Continue)).await.unwrap();
    assert_eq!(report.sinks["table"].lost, lost.len() as u64);
    assert_eq!(report.sinks["table"].lost_transactions, 1);
    let left: Vec<_> = all().into_iter().filter(|number| !lost.contains(number)).collect();
    assert_eq!(scene.target.visible(), left);
}

/// [TPL-12] [TPL-13] Going back loses nothing, so it comes before a loss that is tolerated.
#[tokio::test]
async fn a_roll_back_comes_before_a_loss_that_is_tolerated() {
    let scene = Scene::new().await;
    let (first, _, waiting) = scene.with_pending().await;
    scene.target.expire(&waiting);
    let report = scene.finish(scene.job_with(2, LossPolicy::Continue)).await.unwrap();
    assert_eq!(report.sinks["table"].lost, 0);
    assert_eq!(roll_backs(&scene).await, [Some(first)]);
    assert_eq!(scene.target.visible(), all());
}

/// [TPL-12]
#[tokio::test]
async fn transactions_that_the_target_has_forgotten_stop_the_job() {
    let scene = Scene::new().await;
    let (_, second, waiting) = scene.with_pending().await;
    scene.target.forget(&waiting[..1]);
    let error = scene.finish(scene.job(2)).await.unwrap_err();
    assert!(chain(&error).contains(&format!("what became of checkpoint {second} is unknown")), "{error:?}");
    assert!(chain(&error).contains("is unknown to the target"), "{error:?}");
    assert_eq!(verbs(&scene.target.take_calls()), ["open", "inspect"]);
}

/// [CHK-08] Going back to nothing is an empty start: only when asked for.
#[tokio::test]
async fn the_first_checkpoint_is_rolled_back_to_nothing_only_when_that_is_allowed() {
    let scene = Scene::new().await;
    scene.target.set_away(true);
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    job.trigger_checkpoint().await.unwrap();
    job.wait().await.unwrap_err();
    scene.target.set_away(false);
    scene.target.expire(&scene.target.in_phase(Phase::PreCommitted));
    let error = scene.finish(scene.job(2)).await.unwrap_err();
    assert!(chain(&error).contains("none is before it"), "{error:?}");
    scene.finish(scene.job(2).allow_fresh_start()).await.unwrap();
    assert_eq!(scene.target.visible(), all());
    assert_eq!(roll_backs(&scene).await, [None]);
}

/// [TPL-12] [CHK-21] Targets forget what was committed long ago; the note says that it was.
#[tokio::test]
async fn what_is_resolved_is_neither_asked_for_nor_committed_again() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    scene.target.forget(&scene.target.in_phase(Phase::Committed));
    scene.target.take_calls();
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    let calls = scene.target.take_calls();
    assert_eq!((calls_of(&calls, "inspect").len(), calls_of(&calls, "commit").len()), (0, 0), "{calls:?}");
    scene.gate.raise(u64::MAX);
    job.wait().await.unwrap();
    assert_eq!(scene.target.visible(), all());
}

/// [CHK-09] State that nobody takes over stops the job, unless that is allowed.
#[tokio::test]
async fn state_of_an_operator_that_is_gone_is_dropped_only_when_that_is_allowed() {
    let scene = Scene::new().await;
    let mut job = scene.start(scene.job(2));
    scene.reach(&job, 300, 2).await;
    job.stop().await.unwrap();
    job.wait().await.unwrap();
    let renamed = || {
        let target = scene.target.clone();
        levada_engine::Job::new("count").source_function("renamed", scene.source()).two_phase_sink(
            "table",
            crate::scene::options(LossPolicy::Fail),
            move |_| target.sink("table"),
        )
    };
    let error = scene.finish(renamed()).await.unwrap_err();
    assert!(matches!(&error, JobError::UnknownState { uid, .. } if uid == "numbers"), "{error:?}");
    scene.finish(renamed().allow_unknown_state()).await.unwrap();
    assert_eq!(scene.target.lock().visible.len(), 300 + END as usize);
}
