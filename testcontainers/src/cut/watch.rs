//! One rule's eye on one direction of one connection.

use super::pattern::Matcher;
use super::rule::Trigger;

/// What a watch has counted or matched so far.
#[derive(Debug)]
pub(super) enum Watch {
    /// How many bytes are still to come.
    AfterBytes(u64),
    After(Matcher),
    Before(Matcher),
    /// Fires at the next byte, and before it.
    AtOnce,
}

impl Watch {
    pub(super) fn new(trigger: &Trigger) -> Watch {
        match trigger {
            Trigger::AfterBytes(0) => Watch::AtOnce,
            Trigger::AfterBytes(count) => Watch::AfterBytes(*count),
            Trigger::After(pattern) | Trigger::Before(pattern) if pattern.is_empty() => Watch::AtOnce,
            Trigger::After(pattern) => Watch::After(Matcher::new(pattern.clone())),
            Trigger::Before(pattern) => Watch::Before(Matcher::new(pattern.clone())),
        }
    }

    /// Takes the next byte. When the rule's place is found, returns how many of the last bytes, this one included, come
    /// after it. Not called again then.
    pub(super) fn feed(&mut self, byte: u8) -> Option<usize> {
        match self {
            Watch::AfterBytes(left) => {
                *left -= 1;
                (*left == 0).then_some(0)
            }
            Watch::After(matcher) => matcher.feed(byte).then_some(0),
            Watch::Before(matcher) => matcher.feed(byte).then(|| matcher.matched()),
            Watch::AtOnce => Some(1),
        }
    }

    /// Returns how many of the next bytes, from the first on, need no look: they are not its place and begin no pattern.
    pub(super) fn passes(&self, bytes: &[u8]) -> usize {
        match self {
            Watch::AfterBytes(left) => usize::try_from(*left - 1).unwrap_or(usize::MAX).min(bytes.len()),
            Watch::After(matcher) | Watch::Before(matcher) => matcher.passes(bytes),
            Watch::AtOnce => 0,
        }
    }

    /// Takes so many of the next bytes, which need no look.
    pub(super) fn pass(&mut self, count: usize) {
        if let Watch::AfterBytes(left) = self {
            *left -= count as u64;
        }
    }

    /// Returns how many of the last bytes must not be forwarded yet.
    pub(super) fn withholds(&self) -> usize {
        match self {
            Watch::Before(matcher) => matcher.matched(),
            Watch::AfterBytes(_) | Watch::After(_) | Watch::AtOnce => 0,
        }
    }
}
