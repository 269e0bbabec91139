//! The contract of a function that is called while others are still being answered.

use std::future::Future;
use std::sync::Arc;

use super::CallError;

/// What came of one input: any number of outputs, or an error. Every output carries the input's timestamp.
pub type Called<O> = Result<Vec<O>, CallError>;

/// Answers one input, while earlier ones are still being answered.
///
/// One function is shared by all subtasks of a process. Implemented by every
/// `Fn(Arc<I>) -> impl Future<Output = Called<O>>`.
///
/// ```
/// use std::sync::Arc;
/// use levada_core::async_io::{AsyncFunction, CallError};
///
/// fn is_function<I, F: AsyncFunction<I>>(_: &F) {}
///
/// let length = |name: Arc<String>| async move {
///     match name.is_empty() {
///         true => Err(CallError::bad_record("a name is empty")),
///         false => Ok(vec![name.len()]),
///     }
/// };
/// is_function::<String, _>(&length);
/// ```
pub trait AsyncFunction<I>: Send + Sync + 'static {
    /// What it makes of an input.
    type Output: Send + 'static;

    /// Connects, and looks whether the other system can answer. Each subtask calls it before its first call, and again after
    /// each restart.
    fn open(&self) -> impl Future<Output = Result<(), CallError>> + Send {
        async { Ok(()) }
    }

    /// Begins to answer an input. Must return at once, and the future must not block: whoever calls it has others to serve.
    /// A client that only blocks belongs on threads of its own.
    ///
    /// The future is dropped when nobody waits for its result any more: at the timeout of its input, and when the job ends. An
    /// input may be called again: by a retry, and after a restart.
    fn call(&self, input: Arc<I>) -> impl Future<Output = Called<Self::Output>> + Send + 'static;

    /// Tells how many answers have come after their call was dropped, as far as the function notices: for metrics.
    fn late_results(&self) -> u64 {
        0
    }
}

impl<I, O, F, Answer> AsyncFunction<I> for F
where
    O: Send + 'static,
    F: Fn(Arc<I>) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Called<O>> + Send + 'static,
{
    type Output = O;

    fn call(&self, input: Arc<I>) -> impl Future<Output = Called<O>> + Send + 'static {
        self(input)
    }
}

/// Answers many inputs by one call, each with a result of its own.
///
/// What is said of [`AsyncFunction`] holds here, too. Implemented by every
/// `Fn(Vec<Arc<I>>) -> impl Future<Output = Result<Vec<Called<O>>, CallError>>`.
pub trait AsyncBatchFunction<I>: Send + Sync + 'static {
    /// What it makes of an input.
    type Output: Send + 'static;

    /// Connects, and looks whether the other system can answer.
    fn open(&self) -> impl Future<Output = Result<(), CallError>> + Send {
        async { Ok(()) }
    }

    /// Begins to answer inputs; never none. Returns a result for each, in their order: where only some fail, the others have
    /// their outputs. Inputs may be equal.
    ///
    /// # Errors
    /// An error of the whole call is one of each of its inputs.
    fn call_many(
        &self,
        inputs: Vec<Arc<I>>,
    ) -> impl Future<Output = Result<Vec<Called<Self::Output>>, CallError>> + Send + 'static;

    /// Tells how many answers have come after their call was dropped, as far as the function notices: for metrics.
    fn late_results(&self) -> u64 {
        0
    }
}

impl<I, O, F, Answers> AsyncBatchFunction<I> for F
where
    O: Send + 'static,
    F: Fn(Vec<Arc<I>>) -> Answers + Send + Sync + 'static,
    Answers: Future<Output = Result<Vec<Called<O>>, CallError>> + Send + 'static,
{
    type Output = O;

    fn call_many(
        &self,
        inputs: Vec<Arc<I>>,
    ) -> impl Future<Output = Result<Vec<Called<O>>, CallError>> + Send + 'static {
        self(inputs)
    }
}
