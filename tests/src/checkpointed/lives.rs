//! What is different from life to life, and where lives end. Nothing but a life's number decides, so a seed replays it.

/// How many subtasks a life has.
pub fn parallelism(number: u32) -> u32 {
    [2, 4, 2, 3][number as usize % 4]
}

/// What is to go wrong inside of a life, in the words of the crate `fail`: the answer to an entry of the log is lost, and a
/// task comes to grief in one of the `ways`, each a fail point and what happens there. In every fifth life nothing is.
pub fn disturbances(number: u32, ways: &[(&str, &str)]) -> Option<String> {
    if number.is_multiple_of(5) {
        return None;
    }
    let after = 2 + number % 5;
    let (point, grief) = ways[number as usize % ways.len()];
    Some(format!("store::lost_answer={after}*off->1*return;{point}={after}*off->1*{grief}"))
}

/// Returns the fail points of `lists` that begin with none of `elsewhere`. A point that is new is in, unless it is named.
pub fn points_of(lists: &[&[&'static str]], elsewhere: &[&str]) -> Vec<&'static str> {
    let is_here = |point: &&&'static str| !elsewhere.iter().any(|beginning| point.starts_with(beginning));
    lists.iter().flat_map(|list| list.iter()).filter(is_here).copied().collect()
}
