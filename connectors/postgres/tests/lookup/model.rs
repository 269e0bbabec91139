//! Random calls against a map.

use std::collections::BTreeMap;
use std::time::Duration;

use levada_core::Value;
use levada_postgres::lookup::{CacheBound, CacheConfig, LookupError, Matches};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::scene::{Scene, int, number, open, shown, text};

/// A part of a key as a caller may write it.
#[derive(Debug, Clone)]
enum Part {
    Null,
    Int(i64),
    Number(i64),
    Text(i64),
    Unfit,
}

impl Part {
    fn value(&self) -> Value {
        match self {
            Part::Null => Value::Null,
            Part::Int(n) => int(*n),
            Part::Number(n) => number(&format!("{n}.0")),
            Part::Text(n) => text(&n.to_string()),
            Part::Unfit => text("no number"),
        }
    }

    fn meant(&self) -> Option<i64> {
        match self {
            Part::Int(n) | Part::Number(n) | Part::Text(n) => Some(*n),
            Part::Null | Part::Unfit => None,
        }
    }
}

/// What happens in one turn: first changes, then calls at the same time.
#[derive(Debug, Clone)]
struct Turn {
    /// A key, and how many rows it has from now on.
    changes: Vec<(i64, i64, usize)>,
    calls: Vec<Vec<(Part, Part)>>,
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        1 => Just(Part::Null),
        1 => Just(Part::Unfit),
        6 => (0..4_i64).prop_map(Part::Int),
        3 => (0..4_i64).prop_map(Part::Number),
        3 => (0..4_i64).prop_map(Part::Text),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let changes = prop::collection::vec((0..4_i64, 0..4_i64, 0..4_usize), 0..4);
    let calls = prop::collection::vec(prop::collection::vec((part(), part()), 1..12), 1..6);
    (changes, calls).prop_map(|(changes, calls)| Turn { changes, calls })
}

type Model = BTreeMap<(i64, i64), Vec<String>>;

fn expected(model: &Model, matches: Matches, key: &(Part, Part)) -> Result<Vec<String>, &'static str> {
    let is_unfit = matches!(key.0, Part::Unfit) || matches!(key.1, Part::Unfit);
    if is_unfit {
        return Err("unfit");
    }
    let rows = match (key.0.meant(), key.1.meant()) {
        (Some(a), Some(b)) => model.get(&(a, b)).cloned().unwrap_or_default(),
        _ => Vec::new(),
    };
    match (matches, rows.len()) {
        (Matches::First, _) => Ok(rows.into_iter().take(1).collect()),
        (Matches::ExactlyOne, 0) => Err("none"),
        (Matches::ExactlyOne, 2..) => Err("many"),
        _ => Ok(rows),
    }
}

fn outcome(found: &Result<levada_postgres::lookup::Found, LookupError>) -> Result<Vec<String>, &'static str> {
    match found {
        Ok(_) => Ok(shown(found)),
        Err(LookupError::Key { .. }) => Err("unfit"),
        Err(LookupError::NoMatch { .. }) => Err("none"),
        Err(LookupError::Ambiguous { .. }) => Err("many"),
        Err(error) => panic!("{error:?}"),
    }
}

/// [LKP-02] [LKP-03] [LKP-05] whatever is asked for at the same time, in queries of any size, kept or not: each key has the
/// rows that a map would give it.
#[test]
fn every_key_finds_what_a_map_would_give() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let scene = Scene::new("create table t (a int, b numeric, v text); create index on t (a, b)");
    let mut runner = TestRunner::new(Config { cases: 96, failure_persistence: None, ..Config::default() });
    let matches = prop::sample::select(vec![Matches::First, Matches::All, Matches::ExactlyOne]);
    let history = (matches, 1..6_usize, 0..4_u8, prop::collection::vec(turn(), 1..5));
    runner
        .run(&history, |(matches, keys_per_query, kept, turns)| {
            runtime.block_on(play(&scene, matches, keys_per_query, kept, turns));
            Ok(())
        })
        .expect("the model agrees");
}

async fn play(scene: &Scene, matches: Matches, keys_per_query: usize, kept: u8, turns: Vec<Turn>) {
    scene.sql("truncate t");
    let mut config = scene.table("t", &["a", "b"]).columns(["v"]).matches(matches).order_by("v", false);
    config.keys_per_query = keys_per_query;
    config.connections = 2;
    config = match kept {
        0 => config,
        1 => config.cache(CacheConfig::new(CacheBound::Rows(5))),
        2 => config.cache(CacheConfig::new(CacheBound::Bytes(100_000)).missing(Duration::from_secs(3600))),
        _ => config.preload(Duration::from_secs(3600)),
    };
    let lookup = open(config).await;
    let mut model = Model::new();
    for turn in turns {
        for (a, b, rows) in turn.changes {
            let values: Vec<String> = (0..rows).map(|row| format!("{a}-{b}-{row}-of-{rows}")).collect();
            let list =
                values.iter().map(|value| format!("({a}, {b}.0, '{value}')")).collect::<Vec<_>>().join(", ");
            let insert = if rows > 0 { format!("insert into t values {list};") } else { String::new() };
            scene.sql(&format!("begin; delete from t where a = {a} and b = {b}; {insert} commit"));
            model.insert((a, b), values);
            lookup.invalidate(&[int(a), number(&format!("{b}.00"))]).expect("a key");
        }
        let calls: Vec<_> = turn
            .calls
            .into_iter()
            .map(|keys| {
                let lookup = lookup.clone();
                tokio::spawn(async move {
                    let asked: Vec<[Value; 2]> = keys.iter().map(|(a, b)| [a.value(), b.value()]).collect();
                    let found = match &asked[..] {
                        [key] => vec![lookup.get(key).await],
                        _ => lookup.get_many(&asked).await,
                    };
                    (keys, found)
                })
            })
            .collect();
        for call in calls {
            let (keys, found) = call.await.expect("no panic");
            assert_eq!(keys.len(), found.len());
            for (key, found) in keys.iter().zip(&found) {
                assert_eq!(outcome(found), expected(&model, matches, key), "{key:?}");
            }
        }
    }
}
