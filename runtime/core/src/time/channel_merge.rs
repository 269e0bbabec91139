//! Merges the channels of a task into one watermark.

use super::ranked::Ranked;
use super::signal::{LastSaid, TimeSignal};
use crate::clock::Timestamp;
use crate::element::StreamStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    /// Its watermark counts.
    Aligned,
    /// Active again, and its watermark is still behind what was emitted.
    CatchingUp,
    Idle,
    Finished,
}

/// The watermarks of a task's input channels. Whatever a call returns goes into the stream at that place.
///
/// [TIM-13] The merged watermark is the smallest of the channels that are active and have caught up. [TIM-14] When the
/// last one becomes idle, the highest of all channels is emitted, then the status. [TIM-15] A channel that returns counts
/// once its watermark has reached the merged one. [TIM-16] A finished channel is left out, as if it had never been there;
/// one that sends [`Timestamp::MAX`] is finished. When all are, the maximum is emitted.
#[derive(Debug, Clone)]
pub struct ChannelMerge {
    channels: Vec<Channel>,
    /// The watermarks of channels that have not finished.
    open: Ranked<usize>,
    /// Those of channels that are aligned.
    aligned: Ranked<usize>,
    active: usize,
    said: LastSaid,
}

impl ChannelMerge {
    /// Merges `channels` channels, all of them active.
    pub fn new(channels: usize) -> Self {
        let mut open = Ranked::new();
        (0..channels).for_each(|channel| open.set(channel, Timestamp::MIN));
        let aligned = open.clone();
        let channels = vec![Channel::Aligned; channels];
        Self { active: channels.len(), channels, open, aligned, said: LastSaid::NOTHING }
    }

    /// A watermark came out of a channel.
    pub fn watermark(&mut self, channel: usize, watermark: Timestamp) -> Vec<TimeSignal> {
        if watermark == Timestamp::MAX {
            return self.finished(channel);
        }
        let is_growing = self.open.get(&channel).is_some_and(|before| watermark > before);
        if is_growing && self.is_active(channel) {
            self.open.set(channel, watermark);
            self.count_if_caught_up(channel, watermark);
        }
        self.emit()
    }

    /// A status came out of a channel.
    pub fn status(&mut self, channel: usize, status: StreamStatus) -> Vec<TimeSignal> {
        match status {
            StreamStatus::Idle => self.idle(channel),
            StreamStatus::Active => self.active(channel),
        }
        self.emit()
    }

    /// A channel came to its end. What comes out of it afterwards is ignored.
    pub fn finished(&mut self, channel: usize) -> Vec<TimeSignal> {
        self.leave(channel, Channel::Finished);
        self.open.remove(&channel);
        self.emit()
    }

    /// Returns the watermark emitted last; [`Timestamp::MIN`] before the first.
    pub fn merged(&self) -> Timestamp {
        self.said.watermark
    }

    fn is_active(&self, channel: usize) -> bool {
        matches!(self.channels[channel], Channel::Aligned | Channel::CatchingUp)
    }

    fn idle(&mut self, channel: usize) {
        if self.is_active(channel) {
            self.leave(channel, Channel::Idle);
        }
    }

    fn active(&mut self, channel: usize) {
        if self.channels[channel] == Channel::Idle {
            self.channels[channel] = Channel::CatchingUp;
            self.active += 1;
            let watermark = self.open.get(&channel).unwrap_or(Timestamp::MIN);
            self.count_if_caught_up(channel, watermark);
        }
    }

    fn count_if_caught_up(&mut self, channel: usize, watermark: Timestamp) {
        if watermark >= self.said.watermark {
            self.channels[channel] = Channel::Aligned;
        }
        if self.channels[channel] == Channel::Aligned {
            self.aligned.set(channel, watermark);
        }
    }

    fn leave(&mut self, channel: usize, to: Channel) {
        self.active -= usize::from(self.is_active(channel));
        self.channels[channel] = to;
        self.aligned.remove(&channel);
    }

    fn emit(&mut self) -> Vec<TimeSignal> {
        let mut signals = Vec::new();
        if self.active > 0 {
            self.said.status(StreamStatus::Active, &mut signals);
            if let Some(lowest) = self.aligned.lowest() {
                self.said.watermark(lowest, &mut signals);
            }
        } else if let Some(highest) = self.open.highest() {
            self.said.watermark(highest, &mut signals);
            self.said.status(StreamStatus::Idle, &mut signals);
        } else if !self.channels.is_empty() {
            self.said.watermark(Timestamp::MAX, &mut signals);
        }
        signals
    }
}
