//! The same calls over the items of any stream, without a job.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt as _};
use levada_core::SystemClock;
use levada_core::async_io::{
    AsyncBatchFunction, AsyncFunction, AsyncSettings, Batching, CallError, CallMetrics, Left, Operator,
    Order, Outcome, SettingsError,
};

use super::callable::{Callable, Many, One};
use super::flight::Flight;
use super::status::CallReport;
use super::watched::Watch;

/// Calls a function with each item of a stream, many at once, and yields its outputs in the order that the settings ask for:
/// that of the inputs unless they say otherwise.
///
/// Items are taken from the stream as calls find room, so it is never read further ahead than the capacity. When it ends,
/// everything drains; retries that wait get one last attempt. Dropping the result drops the calls.
///
/// An input that fails for good yields an error in its place; what follows it is yielded all the same. By
/// [`OnError::Drop`](levada_core::async_io::OnError::Drop) a bad one yields nothing instead. Needs a tokio runtime, for its timer.
///
/// ```
/// use std::sync::Arc;
/// use futures_util::StreamExt as _;
/// use levada_core::async_io::{AsyncSettings, SettingsError};
/// use levada_engine::async_io::over;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), SettingsError> {
/// let carriers = futures_util::stream::iter(["LH", "TP", "AF"]);
/// let look_up = |code: Arc<&'static str>| async move {
///     Ok(match *code {
///         "LH" => vec!["Lufthansa"],
///         "TP" => vec!["TAP"],
///         _ => vec![],
///     })
/// };
/// let names = over(carriers, look_up, AsyncSettings::new().capacity(2))?;
/// let names: Vec<_> = names.map(|name| name.unwrap()).collect().await;
/// assert_eq!(names, ["Lufthansa", "TAP"]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// The settings cannot work.
pub fn over<S, F>(
    stream: S,
    function: F,
    settings: AsyncSettings<S::Item, F::Output>,
) -> Result<Over<F::Output>, SettingsError>
where
    S: Stream + Send + 'static,
    S::Item: Send + Sync + 'static,
    F: AsyncFunction<S::Item>,
{
    let operator = Operator::single(settings, Order::Ordered)?;
    Ok(Over::new(stream, operator, Arc::new(One(function))))
}

/// The same for a function that answers many items by one call.
///
/// # Errors
/// The settings cannot work.
pub fn over_many<S, F>(
    stream: S,
    function: F,
    settings: AsyncSettings<S::Item, F::Output>,
    batching: Batching,
) -> Result<Over<F::Output>, SettingsError>
where
    S: Stream + Send + 'static,
    S::Item: Send + Sync + 'static,
    F: AsyncBatchFunction<S::Item>,
{
    let operator = Operator::batched(settings, batching, Order::Ordered)?;
    Ok(Over::new(stream, operator, Arc::new(Many(function))))
}

/// The outputs of a function over a stream; made by [`over`] and [`over_many`].
pub struct Over<O> {
    outputs: BoxStream<'static, Result<O, CallError>>,
    report: Arc<CallReport>,
}

impl<O> fmt::Debug for Over<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Over").finish_non_exhaustive()
    }
}

impl<O: Send + 'static> Over<O> {
    fn new<S>(
        stream: S,
        operator: Operator<S::Item, O, (), ()>,
        function: Arc<dyn Callable<S::Item, O>>,
    ) -> Self
    where
        S: Stream + Send + 'static,
        S::Item: Send + Sync + 'static,
    {
        let report = Arc::new(CallReport::unseen());
        let watch = Watch::new("over a stream", Arc::new(SystemClock));
        let calls = Calls {
            items: Box::pin(stream),
            flight: Flight::new(operator, function, watch, Arc::clone(&report)),
            is_open: false,
            has_ended: false,
            due: Vec::new().into_iter(),
        };
        let outputs = futures_util::stream::unfold(calls, |mut calls| async move {
            let next = calls.next().await?;
            Some((next, calls))
        });
        Self { outputs: outputs.boxed(), report }
    }
}

impl<O> Over<O> {
    /// Returns what was counted so far.
    pub fn metrics(&self) -> CallMetrics {
        self.report.metrics()
    }
}

impl<O> Stream for Over<O> {
    type Item = Result<O, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.outputs.poll_next_unpin(context)))
    }
}

struct Calls<S: Stream, O> {
    items: Pin<Box<S>>,
    flight: Flight<S::Item, O, (), ()>,
    is_open: bool,
    has_ended: bool,
    /// Outputs of the last input that has left.
    due: std::vec::IntoIter<O>,
}

impl<S: Stream, O> Calls<S, O> {
    async fn next(&mut self) -> Option<Result<O, CallError>> {
        if !self.is_open {
            self.is_open = true;
            let function = self.flight.function();
            if let Err(error) = function.open().await {
                self.has_ended = true;
                return Some(Err(error));
            }
        }
        loop {
            if let Some(output) = self.due.next() {
                return Some(Ok(output));
            }
            match self.flight.pop() {
                Some(Left::Result(_, Outcome::Outputs(outputs))) => self.due = outputs.into_iter(),
                Some(Left::Result(_, Outcome::Failed(error) | Outcome::Refused(error))) => {
                    return Some(Err(error));
                }
                Some(_) => {}
                None if self.has_ended && self.flight.operator.is_empty() => return None,
                None => self.wait().await,
            }
        }
    }

    async fn wait(&mut self) {
        let may_take = !self.has_ended && self.flight.operator.has_room(0);
        tokio::select! {
            biased;
            () = self.flight.progress() => {}
            item = self.items.next(), if may_take => {
                let now = self.flight.now();
                match item {
                    Some(item) => self.flight.operator.accept(Arc::new(item), (), 0, 0, now, now),
                    None => {
                        self.has_ended = true;
                        self.flight.operator.end(now);
                    }
                }
                self.flight.call();
            }
        }
        self.flight.publish(0);
    }
}
