//! How a function is called.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::CallError;
use super::function::Called;
use super::queue::Order;
use super::retry::RetryStrategy;
use crate::error::ErrorClass;

type OnTimeout<I, O> = Arc<dyn Fn(&I) -> Called<O> + Send + Sync>;
type RetryOn<V> = Arc<dyn Fn(&V) -> bool + Send + Sync>;
type ErrorHandler<I, O> = Arc<dyn Fn(&I, CallError) -> Called<O> + Send + Sync>;
type KeyHash<I> = Arc<dyn Fn(&I) -> u64 + Send + Sync>;

/// What becomes of an input whose last call has failed.
pub enum OnError<I, O> {
    /// The job fails, and names the record.
    Fail,
    /// A bad record has no output, and is counted. Every other failure is not the record's fault, and fails the job.
    Drop,
    /// A bad record goes on in line as it was read, with the error as the reason. Every other failure fails the job.
    DeadLetter,
    /// A function decides, by input and error, on outputs, or on the error that fails the job.
    Handle(ErrorHandler<I, O>),
}

impl<I, O> Clone for OnError<I, O> {
    fn clone(&self) -> Self {
        match self {
            OnError::Fail => OnError::Fail,
            OnError::Drop => OnError::Drop,
            OnError::DeadLetter => OnError::DeadLetter,
            OnError::Handle(handler) => OnError::Handle(Arc::clone(handler)),
        }
    }
}

impl<I, O> fmt::Debug for OnError<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnError::Fail => "Fail",
            OnError::Drop => "Drop",
            OnError::DeadLetter => "DeadLetter",
            OnError::Handle(_) => "Handle",
        })
    }
}

/// How a function is called: how many calls there are at once, how long each may take, what follows an error, and in which
/// order results leave.
///
/// ```
/// use std::time::Duration;
/// use levada_core::async_io::{AsyncSettings, RetryStrategy};
///
/// let settings: AsyncSettings<String, usize> = AsyncSettings::new()
///     .capacity(100)
///     .timeout(Duration::from_secs(2))
///     .retry(RetryStrategy::Fixed { delay: Duration::from_millis(50), retries: 3 })
///     .on_timeout(|_name| Ok(vec![0]));
/// assert!(settings.check().is_ok());
/// assert!(settings.capacity(0).check().is_err());
/// ```
pub struct AsyncSettings<I, O> {
    pub(super) order: Option<Order>,
    pub(super) key: Option<KeyHash<I>>,
    pub(super) capacity: usize,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: RetryStrategy,
    pub(super) retry_on_result: Option<RetryOn<[O]>>,
    pub(super) retry_on_error: RetryOn<CallError>,
    pub(super) on_timeout: Option<OnTimeout<I, O>>,
    pub(super) on_error: OnError<I, O>,
}

impl<I, O> Clone for AsyncSettings<I, O> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            retry_on_result: self.retry_on_result.clone(),
            retry_on_error: Arc::clone(&self.retry_on_error),
            on_timeout: self.on_timeout.clone(),
            on_error: self.on_error.clone(),
            ..*self
        }
    }
}

impl<I, O> fmt::Debug for AsyncSettings<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSettings")
            .field("order", &self.order)
            .field("capacity", &self.capacity)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("on_error", &self.on_error)
            .finish_non_exhaustive()
    }
}

impl<I, O> Default for AsyncSettings<I, O> {
    fn default() -> Self {
        Self::new()
    }
}

impl<I, O> AsyncSettings<I, O> {
    /// How long an input may take unless it is told otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(5);

    /// Makes settings of up to 100 inputs at once, 5 s each, no retries, failing at the first error, and an order that
    /// whoever knows what comes behind chooses.
    pub fn new() -> Self {
        Self {
            order: None,
            key: None,
            capacity: 100,
            timeout: Some(Self::TIMEOUT),
            retry: RetryStrategy::Never,
            retry_on_result: None,
            retry_on_error: Arc::new(CallError::is_retriable),
            on_timeout: None,
            on_error: OnError::Fail,
        }
    }

    /// Results leave in the order of the inputs.
    #[must_use]
    pub fn ordered(self) -> Self {
        Self { order: Some(Order::Ordered), ..self }
    }

    /// Results leave as they come, but never across a watermark or an offer to commit.
    #[must_use]
    pub fn unordered(self) -> Self {
        Self { order: Some(Order::Unordered), ..self }
    }

    /// Results of one record key leave in the order of the inputs, others as they come. Records without a key are taken for
    /// those of one key.
    #[must_use]
    pub fn key_ordered(self) -> Self {
        Self { order: Some(Order::KeyOrdered), key: None, ..self }
    }

    /// Results of one key leave in the order of the inputs, others as they come; the key is what `key` makes of an input. For
    /// a sink whose key is not that of the record.
    #[must_use]
    pub fn key_ordered_by<K: Hash>(self, key: impl Fn(&I) -> K + Send + Sync + 'static) -> Self {
        let hash = move |input: &I| {
            let mut hasher = DefaultHasher::new();
            key(input).hash(&mut hasher);
            hasher.finish()
        };
        Self { order: Some(Order::KeyOrdered), key: Some(Arc::new(hash)), ..self }
    }

    /// Sets how many inputs a subtask may have between their call and the moment their result leaves. In the batched form: how
    /// many calls. Default 100.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Sets how long an input may take over all its attempts, from when it got its slot. Default 5 s. In a job with an atomic
    /// sink a call that is stuck holds up commits for so long: below the time that a revoked split is given.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Lets an input take for ever. Only in jobs with checkpoints, and only without retries.
    #[must_use]
    pub fn no_timeout(self) -> Self {
        Self { timeout: None, ..self }
    }

    /// Sets how often and how soon a call is made again. Default never.
    #[must_use]
    pub fn retry(self, retry: RetryStrategy) -> Self {
        Self { retry, ..self }
    }

    /// Sets which results are not taken, but tried again: such as none, where a row may arrive later.
    #[must_use]
    pub fn retry_on_result(self, is_to_retry: impl Fn(&[O]) -> bool + Send + Sync + 'static) -> Self {
        Self { retry_on_result: Some(Arc::new(is_to_retry)), ..self }
    }

    /// Sets which errors are tried again. Default: those of a [class](ErrorClass::is_retriable) that may pass.
    #[must_use]
    pub fn retry_on_error(self, is_to_retry: impl Fn(&CallError) -> bool + Send + Sync + 'static) -> Self {
        Self { retry_on_error: Arc::new(is_to_retry), ..self }
    }

    /// Sets what an input has for a result when its time is up: outputs, none, or an error. Default: an error that is not the
    /// record's fault.
    #[must_use]
    pub fn on_timeout(self, handler: impl Fn(&I) -> Called<O> + Send + Sync + 'static) -> Self {
        Self { on_timeout: Some(Arc::new(handler)), ..self }
    }

    /// Sets what becomes of an input whose last call has failed. Default: the job fails.
    #[must_use]
    pub fn on_error(self, on_error: OnError<I, O>) -> Self {
        Self { on_error, ..self }
    }

    /// Has a function decide what becomes of an input whose last call has failed.
    #[must_use]
    pub fn handle_errors(self, handler: impl Fn(&I, CallError) -> Called<O> + Send + Sync + 'static) -> Self {
        self.on_error(OnError::Handle(Arc::new(handler)))
    }

    /// Returns the order that was asked for, if one was.
    pub fn order(&self) -> Option<Order> {
        self.order
    }

    /// Tells whether the key of [`Order::KeyOrdered`] is made of the input, not that of the record.
    pub fn has_own_key(&self) -> bool {
        self.key.is_some()
    }

    /// Hashes the key that is made of an input, if one is.
    pub fn key_of(&self, input: &I) -> Option<u64> {
        self.key.as_ref().map(|key| key(input))
    }

    /// Returns how long an input may take, if there is an end to it.
    pub fn timeout_after(&self) -> Option<Duration> {
        self.timeout
    }

    /// Looks whether the settings can work.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.slots()?;
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(SettingsError::NoTime);
        }
        if !self.retry.is_sound() {
            return Err(SettingsError::UnsoundRetry);
        }
        if self.timeout.is_none() && self.retry != RetryStrategy::Never {
            return Err(SettingsError::RetryWithoutTimeout);
        }
        Ok(())
    }

    pub(super) fn slots(&self) -> Result<NonZeroUsize, SettingsError> {
        NonZeroUsize::new(self.capacity).ok_or(SettingsError::NoCapacity)
    }

    /// Tells whether an answer is to be tried again, by the predicates alone.
    pub(super) fn is_to_retry(&self, answer: &Called<O>) -> bool {
        match answer {
            Ok(outputs) => self.retry_on_result.as_ref().is_some_and(|is_to_retry| is_to_retry(outputs)),
            Err(error) => (self.retry_on_error)(error),
        }
    }

    pub(super) fn timed_out(&self, input: &I) -> Called<O> {
        match &self.on_timeout {
            Some(handler) => handler(input),
            None => {
                let after = self.timeout.unwrap_or_default();
                Err(CallError::new(
                    ErrorClass::Retry,
                    format!("no answer within {after:?}, over all attempts"),
                ))
            }
        }
    }
}

/// How inputs are gathered for one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// The most inputs of a call.
    pub inputs: usize,
    /// How long the first one waits for others.
    pub delay: Duration,
    /// How many inputs a subtask may have in flight; `None` for calls × inputs of a call.
    pub in_flight: Option<usize>,
    /// How many payload bytes of inputs a subtask may have in flight. One input is always let in.
    pub bytes: usize,
}

impl Batching {
    /// Gathers up to `inputs` for a call, or as many as come within 1 ms; up to 16 MiB are in flight.
    pub fn new(inputs: usize) -> Self {
        Self { inputs, delay: Duration::from_millis(1), in_flight: None, bytes: 16 << 20 }
    }

    /// One input a call: the form without batches.
    pub(super) fn single() -> Self {
        Self { inputs: 1, delay: Duration::ZERO, in_flight: None, bytes: usize::MAX }
    }

    /// Looks whether the settings can work where an input has `timeout` in all.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check_within(&self, timeout: Option<Duration>) -> Result<(), SettingsError> {
        if timeout.is_some_and(|timeout| !timeout.is_zero() && self.delay >= timeout) {
            return Err(SettingsError::GatheredTooLong);
        }
        match self.inputs == 0 || self.in_flight == Some(0) || self.bytes == 0 {
            true => Err(SettingsError::NoInputs),
            false => Ok(()),
        }
    }
}

/// Settings that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// A capacity of zero.
    NoCapacity,
    /// Batches of no input, or none that may be in flight.
    NoInputs,
    /// A timeout of zero.
    NoTime,
    /// A batch that is gathered for as long as its inputs have, or longer.
    GatheredTooLong,
    /// A strategy that cannot retry.
    UnsoundRetry,
    /// Retries without an end.
    RetryWithoutTimeout,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingsError::NoCapacity => "its capacity is 0: at least one input must be let in",
            SettingsError::NoInputs => "its batches have room for 0 inputs or bytes: at least one must be let in",
            SettingsError::NoTime => "its timeout is 0: no call could be answered; for none at all there is no_timeout",
            SettingsError::GatheredTooLong => {
                "its batches are gathered for as long as the timeout, or longer: no input that waits for others would be called"
            }
            SettingsError::UnsoundRetry => {
                "its retry strategy needs at least one retry, a delay above 0, a factor of at least 1 and a longest delay not \
                 below the first"
            }
            SettingsError::RetryWithoutTimeout => "it retries and has no timeout: set one, it ends all attempts together",
        })
    }
}

impl std::error::Error for SettingsError {}
