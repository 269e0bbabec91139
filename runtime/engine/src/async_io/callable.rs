//! A function of either form, behind one face.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_core::async_io::{AsyncBatchFunction, AsyncFunction, CallError, Called};

pub(crate) type Answers<O> = Result<Vec<Called<O>>, CallError>;
pub(crate) type Answering<O> = Pin<Box<dyn Future<Output = Answers<O>> + Send>>;

/// A function that inputs are given to, and that answers them in their order.
pub(crate) trait Callable<I, O>: Send + Sync {
    fn open(&self) -> Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + '_>>;

    fn begin(&self, inputs: Vec<Arc<I>>) -> Answering<O>;

    fn late_results(&self) -> u64;
}

/// Takes one input a call.
pub(crate) struct One<F>(pub(crate) F);

impl<I, F> Callable<I, F::Output> for One<F>
where
    I: Send + Sync + 'static,
    F: AsyncFunction<I>,
{
    fn open(&self) -> Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + '_>> {
        Box::pin(self.0.open())
    }

    fn begin(&self, mut inputs: Vec<Arc<I>>) -> Answering<F::Output> {
        // A call of this form has one input.
        let Some(input) = inputs.pop() else { return Box::pin(async { Ok(Vec::new()) }) };
        let answer = self.0.call(input);
        Box::pin(async move { Ok(vec![answer.await]) })
    }

    fn late_results(&self) -> u64 {
        self.0.late_results()
    }
}

/// Takes many inputs a call.
pub(crate) struct Many<F>(pub(crate) F);

impl<I, F> Callable<I, F::Output> for Many<F>
where
    I: Send + Sync + 'static,
    F: AsyncBatchFunction<I>,
{
    fn open(&self) -> Pin<Box<dyn Future<Output = Result<(), CallError>> + Send + '_>> {
        Box::pin(self.0.open())
    }

    fn begin(&self, inputs: Vec<Arc<I>>) -> Answering<F::Output> {
        Box::pin(self.0.call_many(inputs))
    }

    fn late_results(&self) -> u64 {
        self.0.late_results()
    }
}
