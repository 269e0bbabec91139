//! The receiving end of a task: one channel, or one from each subtask before an exchange.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use levada_core::time::{ChannelMerge, TimeSignal};
use levada_core::{Barrier, StreamElement, Timestamp};
use tokio::sync::mpsc;

use crate::checkpoint::{Alignment, Step};
use crate::message::Stopped;

/// One input channel.
struct Channel<T> {
    elements: mpsc::Receiver<StreamElement<T>>,
    /// It has delivered a barrier that others have not.
    is_held: bool,
    has_ended: bool,
}

/// The channels of a task as one stream, its barriers aligned and its watermarks merged.
///
/// An ended channel still delivers barriers: its sender takes part in checkpoints until the job is over.
pub(crate) struct Inlet<T> {
    channels: Vec<Channel<T>>,
    alignment: Alignment,
    time: ChannelMerge,
    /// Whose turn it is, so that none starves.
    turn: usize,
    /// What follows from the last element.
    due: VecDeque<StreamElement<T>>,
}

impl<T> Inlet<T> {
    pub(crate) fn new(receivers: Vec<mpsc::Receiver<StreamElement<T>>>) -> Self {
        let channel = |elements| Channel { elements, is_held: false, has_ended: false };
        let channels: Vec<Channel<T>> = receivers.into_iter().map(channel).collect();
        let alignment = Alignment::new(channels.len());
        let time = ChannelMerge::new(channels.len());
        Self { channels, alignment, time, turn: 0, due: VecDeque::new() }
    }

    /// Returns the merged watermark: no record with this timestamp or an earlier one is expected any more.
    pub(crate) fn watermark(&self) -> Timestamp {
        self.time.merged()
    }

    /// Waits for the next element. A barrier comes once, when every channel has delivered it, and `End` once, when every
    /// channel has. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<StreamElement<T>, Stopped> {
        loop {
            if let Some(due) = self.due.pop_front() {
                return Ok(due);
            }
            let (index, element) = poll_fn(|context| self.poll_channels(context)).await;
            let Some(element) = element else { return Err(Stopped::PeerGone) };
            match element {
                StreamElement::Barrier(barrier) => self.barrier(index, barrier),
                StreamElement::End => self.end(index),
                StreamElement::Watermark(watermark) => {
                    let signals = self.time.watermark(index, watermark);
                    self.signal(signals);
                }
                StreamElement::Status(status) => {
                    let signals = self.time.status(index, status);
                    self.signal(signals);
                }
                other => return Ok(other),
            }
        }
    }

    /// Takes an element from a channel that is not held; starts behind the one that was served last.
    fn poll_channels(&mut self, context: &mut Context<'_>) -> Poll<(usize, Option<StreamElement<T>>)> {
        let count = self.channels.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            let channel = &mut self.channels[index];
            if channel.is_held {
                continue;
            }
            if let Poll::Ready(element) = channel.elements.poll_recv(context) {
                self.turn = (index + 1) % count;
                return Poll::Ready((index, element));
            }
        }
        Poll::Pending
    }

    fn barrier(&mut self, index: usize, barrier: Barrier) {
        for step in self.alignment.barrier(index, barrier.checkpoint) {
            match step {
                Step::Hold(channel) => self.channels[channel].is_held = true,
                Step::Release(channel) => self.channels[channel].is_held = false,
                Step::Aligned(_) => self.due.push_back(StreamElement::Barrier(barrier)),
                // The coordinator knows of a checkpoint that a newer one overtook: nobody acks it.
                _ => {}
            }
        }
    }

    fn end(&mut self, index: usize) {
        self.channels[index].has_ended = true;
        let signals = self.time.finished(index);
        self.signal(signals);
        if self.channels.iter().all(|channel| channel.has_ended) {
            self.due.push_back(StreamElement::End);
        }
    }

    fn signal(&mut self, signals: Vec<TimeSignal>) {
        self.due.extend(signals.into_iter().map(StreamElement::from));
    }
}

#[cfg(test)]
mod tests {
    use levada_core::{BarrierKind, CheckpointId, StreamStatus};

    use super::*;

    fn inlet(channels: usize) -> (Vec<mpsc::Sender<StreamElement<u8>>>, Inlet<u8>) {
        let (senders, receivers) = (0..channels).map(|_| mpsc::channel(16)).unzip();
        (senders, Inlet::new(receivers))
    }

    fn barrier() -> StreamElement<u8> {
        let checkpoint = CheckpointId::new(1, 1);
        let triggered_at = Timestamp::default();
        StreamElement::Barrier(Barrier { checkpoint, kind: BarrierKind::Checkpoint, triggered_at })
    }

    fn send(to: &mpsc::Sender<StreamElement<u8>>, elements: impl IntoIterator<Item = StreamElement<u8>>) {
        elements.into_iter().for_each(|element| to.try_send(element).unwrap());
    }

    /// What comes out until nothing is left, as text.
    fn drained(inlet: &mut Inlet<u8>) -> Vec<String> {
        use futures_util::FutureExt as _;

        let name = |element| match element {
            StreamElement::Watermark(watermark) => format!("watermark {}", watermark.0),
            StreamElement::Status(status) => format!("{status:?}"),
            StreamElement::Barrier(_) => "barrier".to_owned(),
            StreamElement::End => "end".to_owned(),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| inlet.next().now_or_never()).map(|element| name(element.unwrap())).collect()
    }

    fn at(watermark: i64) -> StreamElement<u8> {
        StreamElement::Watermark(Timestamp(watermark))
    }

    /// [TIM-13] [TIM-15] [TIM-16] the inlet's part.
    #[test]
    fn smallest_watermark_of_those_that_count_comes_out_and_never_goes_back() {
        let (senders, mut inlet) = inlet(2);
        send(&senders[0], [at(10)]);
        assert_eq!(drained(&mut inlet), [""; 0]);
        send(&senders[1], [at(5), at(3)]);
        assert_eq!(drained(&mut inlet), ["watermark 5"]);
        send(&senders[1], [StreamElement::Status(StreamStatus::Idle)]);
        assert_eq!(drained(&mut inlet), ["watermark 10"]);
        send(&senders[1], [StreamElement::Status(StreamStatus::Active)]);
        assert_eq!(drained(&mut inlet), [""; 0]);
        assert_eq!(inlet.watermark(), Timestamp(10));
        send(&senders[0], [StreamElement::End]);
        send(&senders[1], [at(20)]);
        assert_eq!(drained(&mut inlet), ["watermark 20"]);
    }

    /// [TIM-08] [TIM-14] the inlet's part.
    #[test]
    fn highest_watermark_comes_out_before_the_channels_are_idle() {
        let (senders, mut inlet) = inlet(2);
        send(&senders[0], [at(5), StreamElement::Status(StreamStatus::Idle)]);
        send(&senders[1], [at(2), StreamElement::Status(StreamStatus::Idle)]);
        let all = drained(&mut inlet);
        assert_eq!(all[all.len() - 2..], ["watermark 5", "Idle"], "{all:?}");
        send(&senders[1], [StreamElement::Status(StreamStatus::Active)]);
        assert_eq!(drained(&mut inlet), ["Active"]);
    }

    /// [CHK-07] what follows a barrier waits until every channel has delivered it; an ended one still delivers barriers.
    #[test]
    fn channel_that_delivered_a_barrier_is_held_until_all_have() {
        let (senders, mut inlet) = inlet(2);
        send(&senders[0], [barrier(), at(7)]);
        send(&senders[1], [at(9), StreamElement::End]);
        assert_eq!(drained(&mut inlet), [""; 0], "the watermark behind the barrier is held");
        send(&senders[1], [barrier()]);
        assert_eq!(drained(&mut inlet), ["barrier", "watermark 7"]);
        send(&senders[0], [StreamElement::End]);
        assert_eq!(drained(&mut inlet), [&format!("watermark {}", i64::MAX), "end"], "[TIM-04]");
    }
}
