use levada_core::StreamStatus::{Active, Idle};
use levada_core::time::ChannelMerge;
use levada_core::time::TimeSignal::{self, Status, Watermark};
use levada_core::{StreamStatus, Timestamp};

use crate::dice::{Dice, histories};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    At(usize, i64),
    Idle(usize),
    Active(usize),
    Finished(usize),
}

use Step::{At, Finished};

fn at(watermark: i64) -> TimeSignal {
    Watermark(Timestamp(watermark))
}

fn take(merge: &mut ChannelMerge, step: Step) -> Vec<TimeSignal> {
    match step {
        At(channel, watermark) => merge.watermark(channel, Timestamp(watermark)),
        Step::Idle(channel) => merge.status(channel, Idle),
        Step::Active(channel) => merge.status(channel, Active),
        Finished(channel) => merge.finished(channel),
    }
}

/// Every step with what must come out of it.
fn plays(channels: usize, script: &[(Step, &[TimeSignal])]) {
    let mut merge = ChannelMerge::new(channels);
    for (number, (step, expected)) in script.iter().enumerate() {
        assert_eq!(take(&mut merge, *step), *expected, "step {number}: {step:?}");
    }
}

/// [TIM-13]
#[test]
fn single_channel_increases_and_never_decreases() {
    plays(
        1,
        &[
            (At(0, 0), &[at(0)]),
            (At(0, 25), &[at(25)]),
            (At(0, 25), &[]),
            (At(0, 18), &[]),
            (At(0, 42), &[at(42)]),
        ],
    );
}

/// [TIM-13]
#[test]
fn minimum_comes_once_all_have_reported_and_moves_with_the_slowest() {
    let script: [(Step, &[TimeSignal]); 9] = [
        (At(0, 0), &[]),
        (At(1, 0), &[]),
        (At(2, 0), &[at(0)]),
        (At(0, 12), &[]),
        (At(2, 10), &[]),
        (At(1, 10), &[at(10)]),
        (At(1, 15), &[]),
        (At(2, 17), &[at(12)]),
        (At(0, 20), &[at(15)]),
    ];
    plays(3, &script);
}

/// [TIM-13] [TIM-08]
#[test]
fn value_of_an_idle_channel_is_ignored_and_its_watermark_stays() {
    let script: [(Step, &[TimeSignal]); 7] = [
        (At(0, 25), &[at(25)]),
        (Step::Idle(0), &[Status(Idle)]),
        (Step::Idle(0), &[]),
        (At(0, 50), &[]),
        (Step::Active(0), &[Status(Active)]),
        (Step::Active(0), &[]),
        (At(0, 50), &[at(50)]),
    ];
    plays(1, &script);
}

/// [TIM-14]
#[test]
fn channels_that_become_idle_one_by_one_let_the_watermark_advance() {
    let script: [(Step, &[TimeSignal]); 6] = [
        (At(0, 25), &[]),
        (At(1, 10), &[]),
        (At(2, 17), &[at(10)]),
        (Step::Idle(1), &[at(17)]),
        (Step::Idle(2), &[at(25)]),
        (Step::Idle(0), &[Status(Idle)]),
    ];
    plays(3, &script);
}

/// [TIM-14] Those that hold nothing back become idle first.
#[test]
fn last_channel_to_become_idle_lets_the_highest_come_out_before_the_status() {
    let script: [(Step, &[TimeSignal]); 5] = [
        (At(0, 5), &[]),
        (At(1, 2), &[at(2)]),
        (Step::Idle(0), &[]),
        (Step::Idle(1), &[at(5), Status(Idle)]),
        (Step::Active(1), &[Status(Active)]),
    ];
    plays(2, &script);
}

/// [TIM-14]
#[test]
fn highest_comes_out_also_when_the_last_active_channel_was_still_catching_up() {
    let script: [(Step, &[TimeSignal]); 7] = [
        (At(1, 50), &[]),
        (Step::Idle(0), &[at(50)]),
        (Step::Active(0), &[]),
        (At(0, 40), &[]),
        (At(1, 100), &[at(100)]),
        (Step::Idle(1), &[]),
        (Step::Idle(0), &[Status(Idle)]),
    ];
    plays(2, &script);
    let script: [(Step, &[TimeSignal]); 9] = [
        (At(0, 10), &[]),
        (At(1, 20), &[]),
        (At(2, 5), &[at(5)]),
        (Step::Idle(2), &[at(10)]),
        (Step::Active(2), &[]),
        (At(1, 100), &[]),
        (Step::Idle(1), &[]),
        (Step::Idle(0), &[]),
        (Step::Idle(2), &[at(100), Status(Idle)]),
    ];
    plays(3, &script);
}

/// [TIM-15] Until then the others go on without it, and from then on they wait for it.
#[test]
fn returning_channel_counts_once_it_has_caught_up() {
    let script: [(Step, &[TimeSignal]); 10] = [
        (Step::Idle(1), &[]),
        (At(0, 8), &[at(8)]),
        (Step::Active(1), &[]),
        (At(1, 5), &[]),
        (At(0, 10), &[at(10)]),
        (At(1, 9), &[]),
        (At(0, 12), &[at(12)]),
        (At(1, 12), &[]),
        (At(0, 15), &[]),
        (At(1, 14), &[at(14)]),
    ];
    plays(2, &script);
}

/// [TIM-15] Behind the output it neither holds anything back nor lets anything go.
#[test]
fn nothing_comes_out_while_every_active_channel_is_catching_up() {
    let script: [(Step, &[TimeSignal]); 8] = [
        (At(0, 10), &[]),
        (At(1, 7), &[at(7)]),
        (Step::Idle(0), &[]),
        (Step::Idle(1), &[at(10), Status(Idle)]),
        (Step::Active(1), &[Status(Active)]),
        (At(1, 9), &[]),
        (Step::Idle(1), &[Status(Idle)]),
        (Step::Active(1), &[Status(Active)]),
    ];
    plays(2, &script);
}

/// [TIM-15] The one that returns is the only one that has caught up.
#[test]
fn returning_channel_that_is_ahead_of_all_who_catch_up_lets_its_watermark_come_out() {
    let script: [(Step, &[TimeSignal]); 7] = [
        (At(0, 12), &[]),
        (At(2, 10), &[]),
        (At(1, 3), &[at(3)]),
        (Step::Idle(0), &[]),
        (Step::Idle(1), &[at(10)]),
        (Step::Active(1), &[]),
        (Step::Idle(2), &[]),
    ];
    plays(3, &script);
    let mut merge = ChannelMerge::new(3);
    script.iter().for_each(|(step, _)| drop(take(&mut merge, *step)));
    assert_eq!(take(&mut merge, Step::Active(0)), [at(12)]);
}

/// [TIM-16]
#[test]
fn finished_channel_is_left_out_and_no_infinity_until_all_are() {
    for finish in [|channel| Finished(channel), |channel| At(channel, i64::MAX)] {
        let script: [(Step, &[TimeSignal]); 8] = [
            (At(0, 10), &[]),
            (At(1, 5), &[at(5)]),
            (finish(0), &[]),
            (Step::Idle(1), &[Status(Idle)]),
            (Step::Active(0), &[]),
            (Step::Active(1), &[Status(Active)]),
            (At(1, 7), &[at(7)]),
            (finish(1), &[Watermark(Timestamp::MAX)]),
        ];
        plays(2, &script);
    }
}

/// [TIM-16]
#[test]
fn end_of_the_last_active_channel_leaves_the_idle_ones_idle() {
    let script: [(Step, &[TimeSignal]); 4] = [
        (At(0, 10), &[]),
        (Step::Idle(1), &[at(10)]),
        (Finished(0), &[Status(Idle)]),
        (Finished(1), &[Status(Active), Watermark(Timestamp::MAX)]),
    ];
    plays(2, &script);
}

const CHANNELS: usize = 3;

fn step(dice: &mut Dice) -> Step {
    let channel = dice.below(CHANNELS as u64) as usize;
    match dice.below(20) {
        0..10 => At(channel, dice.below(20) as i64),
        10..14 => Step::Idle(channel),
        14..18 => Step::Active(channel),
        18 if dice.one_in(2) => At(channel, i64::MAX),
        19 if dice.one_in(2) => Finished(channel),
        _ => At(channel, dice.below(20) as i64),
    }
}

/// One channel as the whole history shows it.
#[derive(Debug)]
struct Seen {
    watermark: i64,
    is_active: bool,
    has_caught_up: bool,
    has_finished: bool,
}

/// `outputs` holds, for each step, the merged watermark before it.
fn seen(channel: usize, history: &[Step], outputs: &[i64]) -> Seen {
    let mut seen = Seen { watermark: i64::MIN, is_active: true, has_caught_up: true, has_finished: false };
    for (step, output) in history.iter().zip(outputs) {
        match *step {
            Finished(of) | At(of, i64::MAX) if of == channel => {
                return Seen { has_finished: true, is_active: false, has_caught_up: false, ..seen };
            }
            At(of, watermark) if of == channel && seen.is_active => {
                seen.watermark = seen.watermark.max(watermark)
            }
            Step::Idle(of) if of == channel => (seen.is_active, seen.has_caught_up) = (false, false),
            Step::Active(of) if of == channel => seen.is_active = true,
            _ => continue,
        }
        seen.has_caught_up |= seen.is_active && seen.watermark >= *output;
    }
    seen
}

fn expected(history: &[Step], outputs: &[i64], before: StreamStatus) -> Vec<TimeSignal> {
    let channels: Vec<Seen> = (0..CHANNELS).map(|channel| seen(channel, history, outputs)).collect();
    let open = || channels.iter().filter(|channel| !channel.has_finished);
    let output = outputs[outputs.len() - 1];
    let (watermark, status) = if open().count() == 0 {
        (Some(i64::MAX), None)
    } else if open().any(|channel| channel.is_active) {
        let caught_up = open().filter(|channel| channel.has_caught_up).map(|channel| channel.watermark);
        (caught_up.min(), Some(Active))
    } else {
        (open().map(|channel| channel.watermark).max(), Some(Idle))
    };
    let watermark = watermark.filter(|watermark| *watermark > output);
    let wakes = before == Idle && (watermark.is_some() || status == Some(Active));
    let sleeps = status == Some(Idle) && (before == Active || wakes);
    let signals = [wakes.then_some(Status(Active)), watermark.map(at), sleeps.then_some(Status(Idle))];
    signals.into_iter().flatten().collect()
}

/// [TIM-13] [TIM-14] [TIM-15] [TIM-16] [TIM-19]
#[test]
fn any_history_of_channels_gives_what_the_model_computes_from_scratch() {
    let (mut flushes, mut ends) = (0, 0);
    histories(|dice| {
        let mut merge = ChannelMerge::new(CHANNELS);
        let mut status = Active;
        let (mut history, mut outputs) = (Vec::new(), Vec::new());
        for _ in 0..dice.below(20) {
            let step = step(dice);
            history.push(step);
            outputs.push(merge.merged().0);
            let signals = take(&mut merge, step);
            assert_eq!(signals, expected(&history, &outputs, status), "{history:?}, outputs {outputs:?}");
            let mut statuses = signals.iter().filter_map(|signal| match signal {
                Status(status) => Some(*status),
                Watermark(_) => None,
            });
            status = statuses.next_back().unwrap_or(status);
            flushes += u64::from(signals.ends_with(&[Status(Idle)]) && signals.len() > 1);
            ends += u64::from(signals.ends_with(&[Watermark(Timestamp::MAX)]));
        }
    });
    println!("{flushes} flushes before idleness, {ends} ends of all channels");
    assert!(flushes > 1000 && ends > 200 || std::env::var("LEVADA_HISTORY").is_ok());
}
