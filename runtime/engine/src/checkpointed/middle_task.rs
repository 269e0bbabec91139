//! The task of one subtask that is neither at a source nor at a sink: steps that keep nothing in checkpoints.

use tokio_util::sync::CancellationToken;

use super::inlet::Inlet;
use super::outlet::Outlet;
use crate::message::Stopped;

pub(crate) struct MiddleTask<I> {
    pub(crate) inlet: Inlet<I>,
    /// The steps, and where their outcome goes.
    pub(crate) outlet: Outlet<I>,
    pub(crate) cancel: CancellationToken,
}

impl<I: Send + 'static> MiddleTask<I> {
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
            let element = self.inlet.next().await?;
            self.outlet.send(element).await?;
        }
    }
}
