use std::time::Duration;

use levada_core::Timestamp;
use levada_core::time::{
    Blocked, IdleTimeout, OpenTransaction, Pause, Question, Reaction, SplitEvent, SplitState, SplitStatus,
};

use SplitEvent::{
    Answer, BrokerAway, EndOfPartition, FetchFailed, FetchWorks, MarkIdle, NoAnswer, Paused, Record, Resumed,
    Seek, Tick, Watermark,
};
use SplitStatus::{Active, CaughtUp, Idle};

/// A split read from position 10, idle after more than 10 ms, with the questions that it asked.
#[derive(Debug)]
struct Scene {
    split: SplitState,
    asked: Vec<Question>,
}

impl Scene {
    fn new() -> Self {
        let timeout = IdleTimeout::new(Duration::from_millis(10)).unwrap();
        Self { split: SplitState::new(10, Some(timeout)), asked: Vec::new() }
    }

    /// At its end since 0, asked at 11.
    fn asked() -> Self {
        let mut scene = Self::new();
        scene.on(0, EndOfPartition { position: 10 });
        scene.on(11, Tick);
        assert_eq!(scene.asked.len(), 1);
        scene
    }

    /// Proven idle at 12.
    fn idle() -> Self {
        let mut scene = Self::asked();
        assert_eq!(scene.answer(12, 10), Idle);
        scene
    }

    fn on(&mut self, at: i64, event: SplitEvent) -> SplitStatus {
        let before = self.split.status();
        let Reaction { ask, status } = self.split.on(event, Timestamp(at));
        self.asked.extend(ask);
        assert_eq!(status, Some(self.split.status()).filter(|now| *now != before), "changes are reported");
        self.split.status()
    }

    /// The leader answers the last question.
    fn answer(&mut self, at: i64, high_watermark: u64) -> SplitStatus {
        let question = *self.asked.last().expect("a question");
        self.on(at, Answer { question, high_watermark })
    }
}

fn is_paused(status: SplitStatus) -> bool {
    matches!(status, SplitStatus::Blocked(Blocked::Paused(_)))
}

/// [TIM-05] Timeout 10, at the end since 10, ticks every 5: asked at 25, not at 20.
#[test]
fn leader_is_asked_once_and_only_after_strictly_longer_than_the_timeout() {
    let mut scene = Scene::new();
    scene.on(4, Record { next: 11 });
    for tick in [5, 10] {
        assert_eq!(scene.on(tick, Tick), Active);
    }
    assert_eq!(scene.on(10, EndOfPartition { position: 11 }), CaughtUp);
    for tick in [15, 20] {
        assert_eq!(scene.on(tick, Tick), CaughtUp);
        assert_eq!(scene.asked, [], "at {tick}");
    }
    assert_eq!(scene.on(25, Tick), CaughtUp);
    scene.on(30, Tick);
    assert_eq!(scene.asked.len(), 1);
    assert_eq!(scene.asked[0].position(), 11);
    assert_eq!(scene.answer(31, 11), Idle);
    assert_eq!(scene.on(1_000_000, Tick), Idle);
    assert_eq!(scene.asked.len(), 1, "not asked again while idle");
}

/// [TIM-05]
#[test]
fn split_that_never_had_data_becomes_idle_the_same_way() {
    let mut scene = Scene::new();
    for tick in [0, 1_000_000] {
        assert_eq!(scene.on(tick, Tick), Active, "silence alone proves nothing");
    }
    scene.on(1_000_000, EndOfPartition { position: 10 });
    scene.on(1_000_011, Tick);
    assert_eq!(scene.answer(1_000_012, 10), Idle);
}

/// [TIM-05]
#[test]
fn answer_that_was_asked_before_the_newest_record_proves_nothing() {
    let mut scene = Scene::asked();
    assert_eq!(scene.on(12, Record { next: 11 }), Active);
    assert_eq!(scene.answer(13, 11), Active);
    scene.on(13, EndOfPartition { position: 11 });
    assert_eq!(scene.answer(14, 11), CaughtUp);
}

/// [TIM-05] Markers were passed over between question and answer.
#[test]
fn answer_to_another_position_proves_nothing_and_the_clock_starts_anew() {
    let mut scene = Scene::asked();
    assert_eq!(scene.on(12, EndOfPartition { position: 13 }), CaughtUp);
    assert_eq!(scene.answer(13, 13), CaughtUp);
    scene.on(22, Tick);
    assert_eq!(scene.asked.len(), 1);
    scene.on(23, Tick);
    assert_eq!(scene.asked.len(), 2);
    assert_eq!(scene.answer(24, 13), Idle);
}

/// [TIM-05] An idle split whose position moves past markers must be proven idle again.
#[test]
fn end_of_partition_at_another_position_ends_a_proof_and_one_at_the_same_does_not() {
    let mut scene = Scene::idle();
    assert_eq!(scene.on(20, EndOfPartition { position: 10 }), Idle);
    assert_eq!(scene.on(20, EndOfPartition { position: 9 }), Idle, "an old one");
    assert_eq!(scene.on(20, EndOfPartition { position: 12 }), CaughtUp);
}

/// [TIM-05]
#[test]
fn answer_that_takes_as_long_as_the_deadline_is_none_and_the_leader_is_asked_again() {
    let mut scene = Scene::asked();
    assert_eq!(scene.on(5010, Tick), CaughtUp);
    assert_eq!(scene.on(5011, Tick), SplitStatus::Blocked(Blocked::BrokerAway));
    assert_eq!(scene.asked.len(), 2, "the deadline is also the time between two attempts");
    let first = scene.asked[0];
    assert_eq!(
        scene.on(5012, Answer { question: first, high_watermark: 10 }),
        SplitStatus::Blocked(Blocked::BrokerAway),
        "too late"
    );
    assert_eq!(scene.answer(5013, 10), Idle);

    let mut scene = Scene::asked();
    assert_eq!(scene.answer(5011, 10), SplitStatus::Blocked(Blocked::BrokerAway), "no tick in between");
}

/// [TIM-05] [TIM-06]
#[test]
fn leader_that_does_not_answer_means_blocked_and_one_question_every_five_seconds() {
    let mut scene = Scene::asked();
    let question = scene.asked[0];
    assert_eq!(scene.on(20, NoAnswer { question }), SplitStatus::Blocked(Blocked::BrokerAway));
    for tick in (20..5011).step_by(10) {
        scene.on(tick, Tick);
    }
    assert_eq!(scene.asked.len(), 1);
    scene.on(5011, Tick);
    assert_eq!(scene.asked.len(), 2);
    assert_eq!(scene.on(5020, Record { next: 11 }), Active);
}

/// [TIM-06] A broker that comes back where nothing is to be read is found by asking.
#[test]
fn broker_that_went_away_before_the_timeout_is_asked_for_and_the_clock_goes_on() {
    let mut scene = Scene::new();
    scene.on(0, EndOfPartition { position: 10 });
    assert_eq!(scene.on(6, BrokerAway), SplitStatus::Blocked(Blocked::BrokerAway));
    scene.on(5006, Tick);
    assert_eq!(scene.answer(5007, 10), CaughtUp, "6 ms of the timeout have passed, not 5007");
    scene.on(5011, Tick);
    assert_eq!(scene.asked.len(), 1);
    scene.on(5012, Tick);
    assert_eq!(scene.answer(5013, 10), Idle);
}

/// [TIM-06]
#[test]
fn split_paused_for_minutes_is_never_idle_and_its_clock_stands_still() {
    for pause in [Pause::Drift, Pause::BackPressure, Pause::User] {
        let mut scene = Scene::new();
        scene.on(0, EndOfPartition { position: 10 });
        assert!(is_paused(scene.on(6, Paused(pause))));
        for tick in (10..600_000).step_by(200) {
            assert!(is_paused(scene.on(tick, Tick)));
        }
        assert_eq!(scene.on(600_000, Resumed(pause)), CaughtUp);
        scene.on(600_004, Tick);
        assert_eq!(scene.asked, [], "6 ms before the pause and 4 after it are not longer than 10");
        scene.on(600_005, Tick);
        assert_eq!(scene.asked.len(), 1);
        assert_eq!(scene.answer(600_006, 10), Idle);
    }
}

/// [TIM-06] What arrived during the pause is known to the leader only.
#[test]
fn split_paused_with_data_waiting_does_not_become_idle_when_it_goes_on() {
    let mut scene = Scene::asked();
    scene.on(12, Paused(Pause::BackPressure));
    assert!(is_paused(scene.answer(13, 10)), "asked before the pause");
    scene.on(300_000, Resumed(Pause::BackPressure));
    assert_eq!(scene.asked.len(), 2, "asked at once: a short time between two pauses must do");
    let expected = Blocked::BehindTransaction { position: 10, high_watermark: 12, transaction: None };
    assert_eq!(scene.answer(300_001, 12), SplitStatus::Blocked(expected));
    assert_eq!(scene.on(300_002, Record { next: 11 }), Active);
}

/// [TIM-06]
#[test]
fn idle_split_that_is_paused_is_idle_no_more_and_must_be_proven_idle_again() {
    let mut scene = Scene::idle();
    assert!(is_paused(scene.on(20, Paused(Pause::User))));
    assert_eq!(scene.on(30, Resumed(Pause::User)), CaughtUp);
    assert_eq!(scene.answer(31, 10), Idle);
}

/// [TIM-06]
#[test]
fn split_goes_on_when_the_last_pause_ends() {
    let mut scene = Scene::new();
    scene.on(0, Paused(Pause::Drift));
    scene.on(1, Paused(Pause::BackPressure));
    assert!(is_paused(scene.on(2, Resumed(Pause::Drift))));
    assert_eq!(scene.on(3, Resumed(Pause::BackPressure)), Active);
}

/// [TIM-06]
#[test]
fn split_behind_an_open_transaction_is_blocked_with_what_is_known_of_it() {
    let mut scene = Scene::asked();
    let behind = |transaction| {
        SplitStatus::Blocked(Blocked::BehindTransaction { position: 10, high_watermark: 15, transaction })
    };
    assert_eq!(scene.answer(12, 15), behind(None));
    let open = OpenTransaction { producer_id: 4001, since: Some(Timestamp(3)) };
    let status = scene.on(13, SplitEvent::Transaction(open));
    assert_eq!(status, behind(Some(open)));
    for tick in (20..100_000).step_by(200) {
        assert_eq!(scene.on(tick, Tick), status);
    }
    assert_eq!(scene.asked.len(), 1);
    let SplitStatus::Blocked(blocked) = status else { panic!("{status:?}") };
    assert_eq!(blocked.to_string(), "behind an open transaction, at 10 of 15, producer 4001 since 3 ms");
    assert_eq!(
        scene.on(100_000, EndOfPartition { position: 16 }),
        CaughtUp,
        "aborted: markers are passed over"
    );
}

/// [TIM-06] A pause does not make the transaction forgotten.
#[test]
fn split_behind_a_transaction_is_still_behind_it_after_a_pause() {
    let mut scene = Scene::asked();
    let behind = scene.answer(12, 15);
    scene.on(20, Paused(Pause::Drift));
    assert_eq!(scene.on(60, Resumed(Pause::Drift)), behind);
}

/// [TIM-05] Only an equal end is a proof.
#[test]
fn leader_that_has_less_than_was_read_proves_nothing_and_is_asked_again() {
    let mut scene = Scene::asked();
    let ahead = SplitStatus::Blocked(Blocked::AheadOfLeader { position: 10, high_watermark: 9 });
    assert_eq!(scene.answer(12, 9), ahead);
    assert_eq!(scene.on(5010, Tick), ahead);
    assert_eq!(scene.asked.len(), 1);
    scene.on(5011, Tick);
    assert_eq!(scene.answer(5012, 10), Idle);
}

/// [TIM-06]
#[test]
fn split_whose_fetch_fails_is_blocked_until_reading_works_again() {
    let works = [FetchWorks, EndOfPartition { position: 10 }];
    for event in works {
        let mut scene = Scene::idle();
        let failed = SplitStatus::Blocked(Blocked::FetchFailed);
        assert_eq!(scene.on(20, FetchFailed), failed);
        assert_eq!(scene.on(100_000, Tick), failed);
        assert_eq!(scene.asked.len(), 1, "{event:?}");
        assert_eq!(scene.on(100_001, event), CaughtUp, "{event:?}");
    }
    let mut scene = Scene::new();
    scene.on(0, FetchFailed);
    assert_eq!(scene.on(1, Record { next: 11 }), Active);
}

/// [TIM-07]
#[test]
fn split_marked_idle_is_idle_at_once_until_the_next_record_or_watermark() {
    let mut scene = Scene::new();
    assert_eq!(scene.on(0, MarkIdle), Idle);
    assert_eq!(scene.on(1, Tick), Idle);
    assert_eq!(scene.on(2, Record { next: 11 }), Active);
    assert_eq!(scene.on(3, MarkIdle), Idle);
    assert_eq!(scene.on(4, Watermark), Active);
    scene.on(5, EndOfPartition { position: 11 });
    assert_eq!(scene.on(6, MarkIdle), Idle);
    assert_eq!(scene.on(7, EndOfPartition { position: 12 }), Idle, "no record came");
    assert_eq!(scene.on(8, Watermark), CaughtUp);
    assert_eq!(scene.asked, []);
}

/// [TIM-07] The way out for whoever pauses a split on purpose and wants the others to go on.
#[test]
fn split_marked_idle_is_idle_also_while_it_is_paused() {
    let mut scene = Scene::new();
    scene.on(0, Paused(Pause::User));
    assert_eq!(scene.on(1, MarkIdle), Idle);
    assert!(is_paused(scene.on(2, Watermark)));
}

/// [SRC-18] the state's part.
#[test]
fn seek_forgets_what_was_known_of_the_end() {
    let mut scene = Scene::idle();
    assert_eq!(scene.on(20, Seek { position: 3 }), Active);
    assert_eq!(scene.on(21, EndOfPartition { position: 10 }), CaughtUp);
    scene.on(31, Tick);
    assert_eq!(scene.asked.len(), 1);
}

/// [TIM-05]
#[test]
fn split_without_a_timeout_is_never_asked_about() {
    let mut split = SplitState::new(0, None);
    split.on(EndOfPartition { position: 0 }, Timestamp(0));
    assert_eq!(split.on(Tick, Timestamp(i64::MAX)), Reaction::default());
    assert_eq!(split.status(), CaughtUp);
}

/// [TIM-20] the clock is a value, and a bad one makes nobody idle too early.
#[test]
fn clock_that_is_set_back_only_prolongs_the_waiting() {
    let mut scene = Scene::new();
    scene.on(1_000_000, EndOfPartition { position: 10 });
    scene.on(1_000_006, Tick);
    scene.on(0, Tick);
    scene.on(4, Tick);
    assert_eq!(scene.asked, []);
    scene.on(5, Tick);
    assert_eq!(scene.asked.len(), 1);
    scene.on(-1_000_000, Tick);
    assert_eq!(scene.on(-995_000, Tick), SplitStatus::Blocked(Blocked::BrokerAway), "the deadline too");
    assert_eq!(scene.asked.len(), 2);
}
