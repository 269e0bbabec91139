//! Lookups on the way: rows get fields from rows of Postgres.
//!
//! ```text
//!  change ─▶ key: fields of the row ─▶ lookup, many keys a query ─▶ joined: the row with more fields
//!     └─ a delete has no row to add to: it passes
//! ```

mod key;
mod open;
mod order;
mod widen;

use std::fmt;
use std::sync::Arc;

use levada_core::async_io::{AsyncBatchFunction, AsyncSettings, Batching, CallError, Called, RetryStrategy};
use levada_core::{Change, ErrorClass, Keyed, Row, Value};
use levada_postgres::lookup::{LookupError, PostgresLookup, PostgresLookupConfig};
use tokio::sync::OnceCell;

use crate::config::{EnrichPart, Miss, StepOrder};

use key::KeyFields;
use widen::Widened;

pub use open::{LookupConfigError, lookup_config};

/// What a lookup shares with those who look at it: there once the pipeline has connected.
pub type Opened = Arc<OnceCell<PostgresLookup>>;

/// Adds the fields of one step to many changes at once. Shared by all subtasks.
pub struct Enrich {
    part: EnrichPart,
    config: PostgresLookupConfig,
    keys: KeyFields,
    widened: Arc<Widened>,
    lookup: Opened,
}

impl fmt::Debug for Enrich {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrich").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Enrich {
    /// Makes the function of a step of `pipeline`.
    ///
    /// # Errors
    /// What in the settings cannot work.
    pub fn new(part: &EnrichPart, pipeline: &str) -> Result<Self, LookupConfigError> {
        let (config, fields) = lookup_config(part, pipeline)?;
        Ok(Self {
            keys: KeyFields { fields, is_absent_null: part.is_absent_null },
            widened: Arc::new(Widened::new(&part.fields)),
            lookup: Opened::default(),
            config,
            part: part.clone(),
        })
    }

    /// Returns where the lookup will be when it is open.
    pub fn opened(&self) -> Opened {
        Arc::clone(&self.lookup)
    }

    fn begin(&self, inputs: Vec<Arc<Keyed>>) -> Result<Asked, CallError> {
        let lookup = self.lookup.get().cloned();
        let lookup = lookup.ok_or_else(|| CallError::new(ErrorClass::Retry, "the lookup is not open"))?;
        let keys = inputs.iter().map(|input| self.keys.of(input)).collect();
        Ok(Asked { lookup, inputs, keys, widened: Arc::clone(&self.widened), miss: self.part.miss })
    }
}

impl AsyncBatchFunction<Keyed> for Enrich {
    type Output = Keyed;

    async fn open(&self) -> Result<(), CallError> {
        self.lookup
            .get_or_try_init(|| open::open(&self.part.name, self.config.clone(), &self.part.fields))
            .await
            .map(drop)
    }

    fn call_many(
        &self,
        inputs: Vec<Arc<Keyed>>,
    ) -> impl Future<Output = Result<Vec<Called<Keyed>>, CallError>> + Send + 'static {
        let asked = self.begin(inputs);
        async move { Ok(asked?.answer().await) }
    }

    fn late_results(&self) -> u64 {
        self.lookup.get().map_or(0, |lookup| lookup.stats().late)
    }
}

/// Names a step's stage: its own name may be that of another stage.
pub fn stage_name(step: &str) -> String {
    format!("enrich {step}")
}

/// How the engine calls the function of a step.
pub fn settings(part: &EnrichPart) -> (AsyncSettings<Keyed, Keyed>, Batching) {
    let settings = AsyncSettings::new()
        .capacity(part.in_flight)
        .timeout(part.timeout)
        .retry(RetryStrategy::Fixed { delay: RETRY_AFTER, retries: u32::MAX });
    let settings = match part.order {
        StepOrder::PerKey => settings.key_ordered_by(order::of_key),
        StepOrder::Ordered => settings.ordered(),
        StepOrder::Unordered => settings.unordered(),
    };
    (settings, Batching::new(part.batch))
}

/// How soon a lookup that failed through no fault of the record is tried again, until its time is up.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(100);

/// One call under way.
struct Asked {
    lookup: PostgresLookup,
    inputs: Vec<Arc<Keyed>>,
    /// `None` for a change that asks for nothing.
    keys: Vec<Result<Option<Vec<Value>>, CallError>>,
    widened: Arc<Widened>,
    miss: Miss,
}

impl Asked {
    async fn answer(self) -> Vec<Called<Keyed>> {
        let asked: Vec<&[Value]> = self.keys.iter().filter_map(|key| key.as_ref().ok()?.as_deref()).collect();
        let mut found = self.lookup.get_many(&asked).await.into_iter();
        let answer = |(input, key): (&Arc<Keyed>, &Result<Option<Vec<Value>>, CallError>)| match key {
            Err(error) => Err(error.clone()),
            Ok(None) => Ok(vec![Keyed::clone(input)]),
            Ok(Some(_)) => match found.next() {
                Some(found) => self.joined(input, found.map_err(call_error)?.first()),
                None => Err(CallError::new(ErrorClass::Retry, "the lookup gave too few answers")),
            },
        };
        self.inputs.iter().zip(&self.keys).map(answer).collect()
    }

    fn joined(&self, input: &Keyed, found: Option<&Row>) -> Called<Keyed> {
        let Change::Upsert(row) = &input.change else { return Ok(vec![input.clone()]) };
        let row = match (found, self.miss) {
            (None, Miss::Drop) => return Ok(Vec::new()),
            (None, Miss::Fail) => {
                return Err(CallError::bad_record(
                    "no row matches, and \"miss: fail\" takes that for an error; \"nulls\" or \"drop\" would go on",
                ));
            }
            (found, _) => self.widened.row(row, input.key.as_ref(), found)?,
        };
        Ok(vec![Keyed { key: input.key.clone(), change: Change::Upsert(row) }])
    }
}

fn call_error(error: LookupError) -> CallError {
    CallError::new(error.class(), "the lookup failed").caused_by(error)
}
