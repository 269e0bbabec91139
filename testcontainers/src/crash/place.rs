//! What parent and child agree on: the variables that name a place, and the line that a child leaves there.

/// Names the fail point, and its passing, at which the child kills itself: `NAME:COUNT`.
pub(super) const KILL_AT: &str = "LEVADA_KILL_AT";
/// Names the fail point, and its passing, at which the child stops itself.
#[cfg(feature = "failpoints")]
pub(super) const STOP_AT: &str = "LEVADA_STOP_AT";

/// Writes the value of such a variable.
pub(super) fn place(point: &str, passing: u32) -> String {
    format!("{point}:{passing}")
}

/// Returns the point and the passing that a value names; `None` if it names none.
#[cfg(feature = "failpoints")]
pub(super) fn parse(place: &str) -> Option<(&str, u32)> {
    let (point, passing) = place.rsplit_once(':')?;
    let passing: u32 = passing.parse().ok()?;
    (!point.is_empty() && passing > 0).then_some((point, passing))
}

/// Returns the child's last line. By it the parent tells a death at the place from any other SIGKILL, such as the one
/// that the system sends when memory is short.
pub(super) fn last_words(place: &str) -> String {
    format!("obeyed: signal to itself at {place}")
}

#[cfg(all(test, feature = "failpoints"))]
mod tests {
    use super::{parse, place};

    /// [TST-10] Names of fail points hold colons themselves.
    #[test]
    fn a_place_is_read_as_it_was_written() {
        assert_eq!(parse(&place("pg::commit::after", 3)), Some(("pg::commit::after", 3)));
        for wrong in ["pg::commit::after", "pg:", ":3", "a:0", "a:-1", ""] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
