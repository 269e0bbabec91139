//! The order in which results come, between two marks.

use std::collections::VecDeque;

/// Segments that marks have cut: all of one leaves, then the mark behind it, then the next one.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// The last one may be open. Marks without an input between them have empty segments.
    segments: VecDeque<Segment>,
}

#[derive(Debug, Default)]
struct Segment {
    /// The first place in it; those of later segments are higher.
    first: u64,
    /// How many inputs have not left.
    inputs: usize,
    /// Those that may leave, in the order in which they came to that.
    ready: VecDeque<u64>,
    /// The mark that has closed it.
    mark: Option<u64>,
}

impl Segments {
    pub(super) fn put(&mut self, place: u64) {
        self.open(place).inputs += 1;
    }

    pub(super) fn mark(&mut self, place: u64) {
        self.open(place).mark = Some(place);
    }

    /// Returns the open segment; begins one at `place` if there is none.
    fn open(&mut self, place: u64) -> &mut Segment {
        let is_open = self.segments.back().is_some_and(|segment| segment.mark.is_none());
        if !is_open {
            self.segments.push_back(Segment { first: place, ..Segment::default() });
        }
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    /// An input may leave when its segment's turn has come.
    pub(super) fn release(&mut self, place: u64) {
        let behind = self.segments.partition_point(|segment| segment.first <= place);
        if let Some(segment) = behind.checked_sub(1).and_then(|index| self.segments.get_mut(index)) {
            segment.ready.push_back(place);
        }
    }

    /// Takes out the next place that may leave.
    pub(super) fn next(&mut self) -> Option<u64> {
        let segment = self.segments.front_mut()?;
        if let Some(place) = segment.ready.pop_front() {
            segment.inputs -= 1;
            return Some(place);
        }
        match segment.mark {
            Some(mark) if segment.inputs == 0 => {
                self.segments.pop_front();
                Some(mark)
            }
            _ => None,
        }
    }
}
