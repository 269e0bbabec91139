//! A table that is kept as a whole.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use levada_core::{ErrorChain, Row, Timestamp};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_postgres::Row as Answer;
use tracing::{info, warn};

use crate::sink::encode::canonical_key;
use crate::sink::session::{Limits, Session, answered};

use super::cache::Rows;
use super::config::PostgresLookupConfig;
use super::connect::limits;
use super::decode::Raw;
use super::error::LookupError;
use super::plan::Plan;
use super::sql;
use super::stats::Counters;

type ByKey = HashMap<Arc<[u8]>, Rows>;

/// The last reading of a table, and what is known to have changed since.
#[derive(Debug)]
pub(crate) struct Whole {
    config: PostgresLookupConfig,
    plan: Arc<Plan>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Rings when the table is to be read now.
    outdated: Notify,
}

#[derive(Debug, Default)]
struct State {
    rows: Arc<ByKey>,
    read: Timestamp,
    /// Keys that are asked for again, each with the reading during which, or after which, it became invalid.
    changed: HashMap<Arc<[u8]>, u64>,
    /// The same for everything.
    all_changed: Option<u64>,
    /// The number of readings that were begun.
    reading: u64,
    /// Whether nobody hears what becomes invalid: what was read a moment ago may have changed since.
    is_deaf: bool,
}

impl Whole {
    /// Reads the table for the first time.
    pub(crate) async fn read(
        config: &PostgresLookupConfig,
        plan: &Arc<Plan>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>, LookupError> {
        let whole = Arc::new(Self {
            config: config.clone(),
            plan: Arc::clone(plan),
            counters: Arc::clone(counters),
            state: Mutex::default(),
            outdated: Notify::new(),
        });
        whole.load().await?;
        Ok(whole)
    }

    // Nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a key's rows as they were read; `None`: the server is to be asked.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Rows> {
        let state = self.state();
        if state.is_deaf || state.all_changed.is_some() || state.changed.contains_key(key) {
            self.counters.misses.fetch_add(1, Relaxed);
            return None;
        }
        let rows = state.rows.get(key).map(Arc::clone);
        let age = self.config.clock.now().since(state.read);
        self.counters.hit(age, rows.is_none());
        Some(rows.unwrap_or_else(|| Arc::from([])))
    }

    pub(crate) fn invalidate(&self, key: &[u8]) {
        let mut state = self.state();
        let reading = state.reading;
        state.changed.insert(key.into(), reading);
    }

    /// Makes everything invalid, and has the table read again.
    pub(crate) fn clear(&self) {
        self.outdate(self.state());
    }

    /// Says whether it is heard what becomes invalid; what was read before is invalid either way.
    pub(crate) fn set_heard(&self, is_heard: bool) {
        let mut state = self.state();
        state.is_deaf = !is_heard;
        self.outdate(state);
    }

    fn outdate(&self, mut state: MutexGuard<'_, State>) {
        state.all_changed = Some(state.reading);
        drop(state);
        self.outdated.notify_one();
    }

    /// Returns how many keys were read.
    pub(crate) fn len(&self) -> usize {
        self.state().rows.len()
    }

    /// Reads the table again and again. What was read before counts until a reading succeeds.
    pub(crate) async fn keep_fresh(self: Arc<Self>, refresh: Duration) {
        loop {
            // Either way the table is read.
            let _ = timeout(refresh, self.outdated.notified()).await;
            if let Err(error) = self.load().await {
                self.counters.failed_loads.fetch_add(1, Relaxed);
                warn!(error = %ErrorChain(&error), table = %self.plan.target, "the table could not be read again");
            }
        }
    }

    async fn load(&self) -> Result<(), LookupError> {
        let reading = {
            let mut state = self.state();
            state.reading += 1;
            state.reading
        };
        let asked = self.config.clock.now();
        let rows = self.fetch().await?;
        info!(table = %self.plan.target, keys = rows.len(), "the table was read");
        self.counters.loads.fetch_add(1, Relaxed);
        let mut state = self.state();
        state.rows = Arc::new(rows);
        state.read = asked;
        // What became invalid while it was read may have been read before the change.
        state.changed.retain(|_, during| *during >= reading);
        state.all_changed = state.all_changed.filter(|during| *during >= reading);
        Ok(())
    }

    async fn fetch(&self) -> Result<ByKey, LookupError> {
        let plan = &self.plan;
        let Some(text) = &plan.whole else { return Ok(ByKey::new()) };
        let failed = |failure| LookupError::server(&plan.target, failure);
        let limits = Limits { statement_timeout: self.config.load_timeout, ..limits(&self.config) };
        let session = Session::connect(&self.config.connection, limits, &self.config.application_name);
        let session = session.await.map_err(|failure| LookupError::unreachable(&plan.target, failure))?;
        let (client, patience) = (&session.client, session.patience);
        answered(patience, client.batch_execute(sql::READ_ONLY)).await.map_err(failed)?;
        let mut lists: HashMap<Arc<[u8]>, Vec<Row>> = HashMap::new();
        for answer in answered(patience, client.query(text, &[])).await.map_err(failed)? {
            let Some(key) = self.key(&answer)? else { continue };
            let rows = lists.entry(key).or_default();
            if rows.len() < plan.most_rows() {
                rows.push(plan.row(&answer, plan.parameters.len())?);
            }
        }
        Ok(lists.into_iter().map(|(key, rows)| (key, rows.into())).collect())
    }

    /// Returns a row's key, unless a part of it is NULL: then nothing finds it.
    fn key(&self, answer: &Answer) -> Result<Option<Arc<[u8]>>, LookupError> {
        let mut canonical = Vec::new();
        for (number, part) in self.plan.parameters.iter().enumerate() {
            let raw = answer.try_get::<_, Option<Raw<'_>>>(number).map_err(|_| LookupError::Undecodable {
                target: Arc::clone(&self.plan.target),
                column: Arc::clone(&part.name),
            })?;
            let Some(Raw(bytes)) = raw else { return Ok(None) };
            let mut cell = (bytes.len() as u32).to_be_bytes().to_vec();
            cell.extend_from_slice(bytes);
            canonical_key(&part.ty, &cell, &mut canonical);
        }
        Ok(Some(canonical.into()))
    }
}
