//! Loops of lives that are killed.

use std::time::Duration;

use levada_testcontainers::Error;
use levada_testcontainers::crash::CrashLoop;

use super::{Feed, Scene, Verdict, parallelism};

/// Fail points that are passed early in a life or late, and then once or twice.
const RARE: &[&str] = &[
    "store::lease::before",
    "store::lease::after",
    "store::heartbeat::before",
    "store::entry::before_read_back",
    "tpc::before_abort",
    "tpc::after_abort",
    "files::abort",
    "recovery::before_inspect",
    "recovery::after_inspect",
    "recovery::before_note",
    "recovery::after_note",
    "recovery::before_roll_back",
    "recovery::after_roll_back",
    "recovery::before_fence",
    "recovery::after_fence",
    "recovery::before_resolved",
    "files::fence",
    "pgwal::fence::before",
    "pgwal::fence::after",
    "kafka::abort::before",
    "kafka::abort::after",
    "kafka::roll_back::before_end",
    "kafka::roll_back::after_end",
    "kafka::inspect::before",
    "kafka::inspect::after",
    "kafka::fence::before_list",
    "kafka::fence::listed",
    "kafka::fence::sent",
    "kafka::fence::after",
];

/// Makes a loop that kills at fail points and at random moments.
pub fn killing<'a>(name: &str, points: &[&'static str]) -> CrashLoop<'a> {
    killing_up_to(20, name, points)
}

/// Makes one whose lives are shorter: none passes its fail point more often than `most` times.
pub fn killing_up_to<'a>(most: u32, name: &str, points: &[&'static str]) -> CrashLoop<'a> {
    let moments = Duration::from_millis(50)..=Duration::from_millis(100 * u64::from(most));
    let all = CrashLoop::new(name).moments(moments).patience(Duration::from_secs(5));
    let often = points.iter().fold(all, |crash_loop, point| crash_loop.point(point, 1..=most));
    let rare = points.iter().filter(|point| RARE.contains(point));
    rare.fold(often, |crash_loop, point| crash_loop.point(point, 1..=1))
}

/// Returns the fail points of `lists` that begin with none of `elsewhere`. A point that is new is in, unless it is named.
pub fn points_of(lists: &[&[&'static str]], elsewhere: &[&str]) -> Vec<&'static str> {
    let is_here = |point: &&&'static str| !elsewhere.iter().any(|beginning| point.starts_with(beginning));
    lists.iter().flat_map(|list| list.iter()).filter(is_here).copied().collect()
}

/// Kills a program that goes wrong at `point`, and returns what `look` finds after one of its lives.
///
/// # Panics
/// Panics if it finds nothing.
pub fn found_out(scene: &Scene, point: &str, mut look: impl FnMut() -> Verdict) -> String {
    let mut feed = Feed::into(scene.topic());
    feed.send(2000);
    let result = CrashLoop::new("wrong")
        // Not at the first: each life is to come a bit further than the one before.
        .point(point, 2..=3)
        .share_of_points(1.0)
        .patience(Duration::from_secs(4))
        .lives(10)
        .after_each(|_| {
            feed.send(2000);
            look()
        })
        .run(|number| scene.command(&scene.told(parallelism(number))));
    match result {
        Err(Error::Complaint { source, .. }) => source.to_string(),
        other => panic!("a complaint of the judge was expected: {other:?}"),
    }
}
