//! The exchange: every subtask before it sends to every subtask behind it, records by their key.

use std::hash::Hash;
use std::sync::Arc;

use levada_core::StreamElement;
use tokio::sync::mpsc;

use super::flow::Flow;
use super::inlet::Inlet;
use super::launch::Launch;
use super::outlet::{CAPACITY, KeyHash, Outlet, hash_of};
use super::segment::{Feeds, Inflow, Segment, Steps, Upstream};
use crate::plan::{Stage, StageKind};

struct Exchange<T, L> {
    upstream: Box<dyn Upstream<T, L>>,
    key: KeyHash<T>,
}

impl<T: Send + 'static, L> Inflow<T, L> for Exchange<T, L> {
    fn open(&self, launch: &mut Launch<'_>, line: L) -> Feeds<T> {
        let parallelism = launch.parallelism;
        let mut senders: Vec<Vec<mpsc::Sender<StreamElement<T>>>> =
            (0..parallelism).map(|_| Vec::new()).collect();
        let mut inlets = Vec::new();
        for _ in 0..parallelism {
            let mut receivers = Vec::new();
            for from in &mut senders {
                let (sender, receiver) = mpsc::channel(CAPACITY);
                from.push(sender);
                receivers.push(receiver);
            }
            inlets.push(Inlet::new(receivers));
        }
        let outlets =
            senders.into_iter().map(|to| Outlet::Exchange { to, key: Arc::clone(&self.key) }).collect();
        self.upstream.spawn(launch, line, outlets);
        // For who comes behind: between a step in front of it and its source there is none.
        launch.has_exchange = true;
        Feeds::Inlets(inlets)
    }
}

impl<I: Send + 'static, T: Send + 'static, L: 'static> Flow<I, T, L> {
    /// Sends each record to the subtask of its key: those of one key stay in order and together.
    pub fn key_by<K, F>(mut self, uid: impl Into<String>, key: F) -> Flow<T, T, L>
    where
        K: Hash,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        self.stages.push(Stage::new(uid, StageKind::Exchange));
        let key: KeyHash<T> = Arc::new(move |item| hash_of(&key(item)));
        self.rebuild(|segment| {
            let inflow = Box::new(Exchange { upstream: Box::new(segment), key });
            Segment { inflow, steps: Steps::none() }
        })
    }
}
