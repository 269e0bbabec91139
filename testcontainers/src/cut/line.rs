//! What is under way: a line with a latency, on which everything follows its predecessor at its own distance.

use std::collections::VecDeque;
use std::time::Instant;

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the end of file.
    Finished,
    /// With a reset.
    Reset,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Bytes(Vec<u8>),
    End(End),
}

/// A queue of items, each with the time at which it arrives. An item never overtakes: if a delay was shortened, the later
/// ones wait for the earlier.
#[derive(Debug, Default)]
pub(super) struct Line {
    items: VecDeque<(Instant, Item)>,
    bytes: usize,
}

impl Line {
    pub(super) fn push(&mut self, due: Instant, item: Item) {
        self.bytes += length(&item);
        self.items.push_back((due, item));
    }

    /// Puts back the rest of an item that was taken: it is due.
    pub(super) fn put_back(&mut self, now: Instant, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        self.items.push_front((now, Item::Bytes(bytes)));
    }

    /// Takes the next item if it has arrived.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Item> {
        if self.due()? > now {
            return None;
        }
        let (_, item) = self.items.pop_front()?;
        self.bytes -= length(&item);
        Some(item)
    }

    /// Returns when the next item arrives.
    pub(super) fn due(&self) -> Option<Instant> {
        self.items.front().map(|(due, _)| *due)
    }

    /// Lets everything under way arrive now.
    pub(super) fn hurry(&mut self, now: Instant) {
        for (due, _) in &mut self.items {
            *due = now.min(*due);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

fn length(item: &Item) -> usize {
    match item {
        Item::Bytes(bytes) => bytes.len(),
        Item::End(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{End, Item, Line};

    const SECOND: Duration = Duration::from_secs(1);

    /// [TST-04] A latency, not a bandwidth.
    #[test]
    fn items_sent_together_arrive_together() {
        let now = Instant::now();
        let mut line = Line::default();
        for _ in 0..3 {
            line.push(now + SECOND, Item::Bytes(vec![1]));
        }
        assert_eq!((line.pop(now), line.bytes(), line.due()), (None, 3, Some(now + SECOND)));
        for _ in 0..3 {
            assert_eq!(line.pop(now + SECOND), Some(Item::Bytes(vec![1])));
        }
        assert!(line.is_empty());
        assert_eq!(line.bytes(), 0);
    }

    /// [TST-04]
    #[test]
    fn nothing_overtakes_when_the_delay_is_shortened() {
        let now = Instant::now();
        let mut line = Line::default();
        line.push(now + SECOND, Item::Bytes(vec![1]));
        line.push(now, Item::End(End::Finished));
        assert_eq!(line.pop(now), None);
        line.hurry(now);
        assert_eq!(line.pop(now), Some(Item::Bytes(vec![1])));
        assert_eq!(line.pop(now), Some(Item::End(End::Finished)));
    }
}
