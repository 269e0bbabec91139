//! The task of one subtask between two exchanges: steps that keep nothing in checkpoints.

use levada_core::StreamElement;
use tokio_util::sync::CancellationToken;

use super::inlet::Inlet;
use super::outlet::Outlet;
use crate::map::Chain;
use crate::message::Stopped;

pub(crate) struct MiddleTask<I, T> {
    pub(crate) inlet: Inlet<I>,
    pub(crate) chain: Box<dyn Chain<I, T>>,
    pub(crate) outlet: Outlet<T>,
    pub(crate) cancel: CancellationToken,
}

impl<I: Send + 'static, T: Send + 'static> MiddleTask<I, T> {
    /// Runs until a neighbour is gone, or it is cancelled: it tells nobody, because whoever ends a job tells why.
    pub(crate) async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            _gone = self.hand_on() => {}
        }
    }

    async fn hand_on(&mut self) -> Result<(), Stopped> {
        loop {
            match self.inlet.next().await? {
                StreamElement::Batch(batch) => {
                    for element in self.chain.process(batch).elements {
                        self.outlet.send(element).await?;
                    }
                }
                StreamElement::Refused(refused) => self.outlet.send(StreamElement::Refused(refused)).await?,
                StreamElement::Watermark(watermark) => {
                    self.outlet.send(StreamElement::Watermark(watermark)).await?;
                }
                StreamElement::Status(status) => self.outlet.send(StreamElement::Status(status)).await?,
                StreamElement::Barrier(barrier) => self.outlet.send(StreamElement::Barrier(barrier)).await?,
                StreamElement::End => self.outlet.send(StreamElement::End).await?,
                _ => {}
            }
        }
    }
}
