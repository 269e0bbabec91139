//! A write-ahead sink and its committer, over what outlives them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{SinkContext, SinkError};
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) visible: Vec<u64>,
    markers: BTreeSet<Marker>,
    /// Segments are not taken.
    pub(crate) is_closed: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    inner: Arc<Mutex<Inner>>,
    sent: Arc<watch::Sender<usize>>,
}

impl Segments {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Waits until so many numbers were sent, and noted as sent.
    pub(crate) async fn wait_for(&self, numbers: usize) {
        self.sent.subscribe().wait_for(|sent| *sent >= numbers).await.unwrap();
    }

    pub(crate) fn visible(&self) -> Vec<u64> {
        let mut visible = self.lock().visible.clone();
        visible.sort_unstable();
        visible
    }
}

impl WriteAheadSink<u64> for Segments {
    async fn open(&mut self, _: SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn send(&mut self, segment: &Segment<u64>) -> Result<bool, SinkError> {
        let mut inner = self.lock();
        if inner.is_closed {
            return Ok(false);
        }
        inner.visible.extend(&segment.records);
        Ok(true)
    }
}

impl CheckpointCommitter for Segments {
    async fn open(&mut self, _: &SinkContext) -> Result<(), SinkError> {
        Ok(())
    }

    async fn is_committed(&mut self, marker: &Marker) -> Result<bool, SinkError> {
        Ok(self.lock().markers.contains(marker))
    }

    async fn commit(&mut self, marker: &Marker) -> Result<(), SinkError> {
        let mut inner = self.lock();
        inner.markers.insert(marker.clone());
        self.sent.send_replace(inner.visible.len());
        Ok(())
    }
}
