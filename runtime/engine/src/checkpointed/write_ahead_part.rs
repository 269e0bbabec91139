//! What a write-ahead sink does once a job: its markers tell what was sent.

use std::marker::PhantomData;

use levada_core::template::{CheckpointCommitter, Fate, WriteAheadSink};
use levada_core::{CheckpointId, SinkContext, State, StateError, Timestamp};

use super::pieces::PieceHome;
use super::sink_part::{BoxFuture, FoundTransaction, Shared, SinkPart, SinkResolver};
use crate::driver::{DriverError, stored_segments};
use crate::store::Store;

/// The part of a write-ahead sink: its markers tell what was sent, and a roll-back must not read that again.
pub(crate) struct WriteAheadPart<T, F> {
    uid: String,
    make: Shared<F>,
    pieces: PieceHome,
    records: PhantomData<fn(T)>,
}

impl<T, F> WriteAheadPart<T, F> {
    pub(crate) fn new(uid: String, make: Shared<F>, pieces: PieceHome) -> Self {
        Self { uid, make, pieces, records: PhantomData }
    }
}

impl<T, K, C, F> SinkPart for WriteAheadPart<T, F>
where
    T: Send + 'static,
    K: WriteAheadSink<T> + 'static,
    C: CheckpointCommitter + 'static,
    F: Fn(u32) -> (K, C) + Send + 'static,
{
    fn bind(&self, store: &Store, piece_bytes: usize) {
        self.pieces.bind(store, piece_bytes);
    }

    fn resolver(&self) -> Box<dyn SinkResolver> {
        let (_, committer) = self.make.make(0);
        Box::new(WriteAheadResolver { uid: self.uid.clone(), committer })
    }
}

struct WriteAheadResolver<C> {
    uid: String,
    committer: C,
}

impl<C: CheckpointCommitter> WriteAheadResolver<C> {
    async fn find(&mut self, states: &[State]) -> Result<Vec<FoundTransaction>, DriverError> {
        let mut all = Vec::new();
        for state in states {
            for (marker, records) in stored_segments(state)? {
                let asked = self.committer.is_committed(&marker).await;
                let is_sent = asked.map_err(DriverError::committer("tell what was sent"))?;
                let fate = if is_sent { Fate::Committed } else { Fate::Pending };
                let (name, checkpoint) = (marker.to_string(), marker.checkpoint);
                all.push(FoundTransaction { name, checkpoint, records, fate, is_loss_tolerated: false });
            }
        }
        Ok(all)
    }
}

impl<C: CheckpointCommitter> SinkResolver for WriteAheadResolver<C> {
    fn uid(&self) -> &str {
        &self.uid
    }

    fn open(&mut self, ctx: SinkContext) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move { self.committer.open(&ctx).await.map_err(DriverError::committer("open")) })
    }

    fn inspect<'a>(
        &'a mut self,
        states: &'a [State],
        _now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        Box::pin(self.find(states))
    }

    fn roll_back<'a>(
        &'a mut self,
        states: &'a [State],
        to: Option<CheckpointId>,
    ) -> BoxFuture<'a, Result<Vec<FoundTransaction>, DriverError>> {
        // A segment that was not sent goes with the state that holds it.
        Box::pin(async move {
            let mut sent = self.find(states).await?;
            sent.retain(|segment| segment.fate == Fate::Committed && Some(segment.checkpoint) > to);
            Ok(sent)
        })
    }

    /// Each subtask's committer fences when it opens.
    fn fence<'a>(
        &'a mut self,
        _first: CheckpointId,
        _states: &'a [State],
    ) -> BoxFuture<'a, Result<(), DriverError>> {
        Box::pin(async { Ok(()) })
    }

    /// A complete checkpoint does not mean that its segments were taken: the markers tell.
    fn settled(&self, state: &State) -> Result<State, StateError> {
        Ok(state.clone())
    }

    fn resolves_at_open(&self) -> bool {
        false
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
