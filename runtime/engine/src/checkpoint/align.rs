//! Aligns the barriers of a task with several input channels.
//!
//! ```text
//!  channel 0  ── a b ▮ c d ──▶   held at ▮ until …
//!  channel 1  ── e f g h ▮ ──▶   … its barrier is here too: the snapshot covers a b e f g h, and not c d
//! ```

use std::collections::BTreeSet;
use std::mem;

use levada_core::CheckpointId;

/// What a task does about its inputs, in the order in which it is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Read nothing more from this channel. Every hold is followed by exactly one release, also if the channel ends in
    /// between.
    Hold(usize),
    /// Read from this channel again.
    Release(usize),
    /// Everything before the barrier has arrived and nothing behind it was read: snapshot, before the releases that follow.
    /// At most once for each checkpoint, and never together with [`Step::Aborted`].
    Aligned(CheckpointId),
    /// The checkpoint will not be aligned here. At most once for each.
    Aborted(CheckpointId),
}

/// The barriers of one task's inputs.
///
/// Checkpoints are aligned one at a time, in the order of their ids. A barrier or a cancellation of a newer one ends the
/// alignment of an older one; whatever comes of an older one afterwards is ignored.
#[derive(Debug, Clone)]
pub struct Alignment {
    /// Channels that have not ended. The others count as having delivered every barrier.
    open: BTreeSet<usize>,
    /// The newest checkpoint of which a barrier or a cancellation came.
    newest: Option<CheckpointId>,
    /// Whether `newest` still waits for barriers.
    is_aligning: bool,
    /// Channels that delivered the barrier of `newest` while it waits; each is held.
    delivered: BTreeSet<usize>,
}

impl Alignment {
    /// Waits for barriers on `channels` channels, all of them open.
    pub fn new(channels: usize) -> Self {
        let open = (0..channels).collect();
        Self { open, newest: None, is_aligning: false, delivered: BTreeSet::new() }
    }

    /// Waits for barriers on `channels` channels, some of which ended before the task was restored.
    #[must_use]
    pub fn with_ended(channels: usize, ended: impl IntoIterator<Item = usize>) -> Self {
        let mut alignment = Self::new(channels);
        for channel in ended {
            alignment.open.remove(&channel);
        }
        alignment
    }

    /// Returns the checkpoint that waits for barriers: for whoever measures how long it does.
    pub fn aligning(&self) -> Option<CheckpointId> {
        self.newest.filter(|_| self.is_aligning)
    }

    /// A barrier came out of a channel. One that is late, comes twice, or comes from a channel that has ended is ignored.
    pub fn barrier(&mut self, channel: usize, checkpoint: CheckpointId) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.open.contains(&channel) {
            return steps;
        }
        if self.newest < Some(checkpoint) {
            self.abort_current(&mut steps);
            self.newest = Some(checkpoint);
            self.is_aligning = true;
        }
        let is_awaited = self.aligning() == Some(checkpoint);
        if is_awaited && self.delivered.insert(channel) {
            if self.is_complete() {
                // This channel need not be held for a moment: nothing was read behind its barrier.
                self.delivered.remove(&channel);
                self.complete(checkpoint, &mut steps);
            } else {
                steps.push(Step::Hold(channel));
            }
        }
        steps
    }

    /// A channel came to its end: from now on it counts as having delivered every barrier.
    pub fn ended(&mut self, channel: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        self.open.remove(&channel);
        if let Some(checkpoint) = self.aligning().filter(|_| self.is_complete()) {
            self.complete(checkpoint, &mut steps);
        }
        steps
    }

    /// A checkpoint was aborted, by whoever triggered it or further up the stream. Its barriers, and those of older ones, are
    /// ignored from now on.
    pub fn cancelled(&mut self, checkpoint: CheckpointId) -> Vec<Step> {
        let mut steps = Vec::new();
        let is_current = self.aligning() == Some(checkpoint);
        let is_newer = self.newest < Some(checkpoint);
        if is_current || is_newer {
            self.abort_current(&mut steps);
        }
        if is_newer {
            self.newest = Some(checkpoint);
            steps.push(Step::Aborted(checkpoint));
        }
        steps
    }

    fn is_complete(&self) -> bool {
        self.open.is_subset(&self.delivered)
    }

    fn complete(&mut self, checkpoint: CheckpointId, steps: &mut Vec<Step>) {
        self.is_aligning = false;
        steps.push(Step::Aligned(checkpoint));
        self.release(steps);
    }

    fn abort_current(&mut self, steps: &mut Vec<Step>) {
        if let Some(checkpoint) = self.aligning() {
            self.is_aligning = false;
            steps.push(Step::Aborted(checkpoint));
            self.release(steps);
        }
    }

    fn release(&mut self, steps: &mut Vec<Step>) {
        steps.extend(mem::take(&mut self.delivered).into_iter().map(Step::Release));
    }
}
