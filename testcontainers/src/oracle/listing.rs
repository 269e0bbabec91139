//! Lists in messages: their beginning and how many there are, because a test that goes wrong often does so for thousands.

use std::fmt::{self, Display, Formatter};

/// How many entries of a list are shown.
pub(super) const SHOWN: usize = 10;

/// Writes a line with the first entries of a list and the number of the others; nothing for an empty list.
pub(super) fn write_listing<T>(
    f: &mut Formatter<'_>,
    title: &str,
    entries: &[T],
    show: impl Fn(&T, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    if entries.is_empty() {
        return Ok(());
    }
    write!(f, "\n  {title}: ")?;
    for (place, entry) in entries.iter().take(SHOWN).enumerate() {
        if place > 0 {
            f.write_str("; ")?;
        }
        show(entry, f)?;
    }
    write_rest(f, "; ", entries.len())
}

/// Writes how many entries were not shown, if any.
pub(super) fn write_rest(f: &mut Formatter<'_>, separator: impl Display, all: usize) -> fmt::Result {
    match all.checked_sub(SHOWN) {
        None | Some(0) => Ok(()),
        Some(more) => write!(f, "{separator}and {more} more"),
    }
}
