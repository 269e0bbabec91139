//! A client that only blocks, on threads of its own.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use levada_core::ErrorClass;
use levada_core::async_io::{AsyncFunction, CallError, Called};
use tokio::sync::oneshot;

/// How many threads there are, and what they are called.
#[derive(Debug, Clone)]
pub struct BlockingSettings {
    /// How many calls run at once; each thread has a client of its own. Default 4; more calls than threads wait for one.
    pub threads: usize,
    /// What the threads are called. Default `levada-blocking`.
    pub name: String,
}

impl Default for BlockingSettings {
    fn default() -> Self {
        Self { threads: 4, name: "levada-blocking".to_owned() }
    }
}

impl BlockingSettings {
    /// Sets the number of threads. At least one is made.
    pub fn threads(threads: usize) -> Self {
        Self { threads, ..Self::default() }
    }
}

struct Job<I, O> {
    input: Arc<I>,
    answer: oneshot::Sender<Called<O>>,
}

/// Runs calls of a client that blocks on a bounded number of threads, each with a client of its own: one connection, one
/// prepared statement, used again for every call. [ASY-01]
///
/// A client is made by a thread's first call, and again after one that failed with
/// [`ErrorClass::Reconnect`](levada_core::ErrorClass::Reconnect) or panicked. A call whose time is up before a thread takes it is
/// not made. One that runs cannot be stopped: its answer comes late, and is counted.
///
/// ```
/// use std::sync::Arc;
/// use levada_core::async_io::{AsyncFunction, CallError};
/// use levada_engine::async_io::{Blocking, BlockingSettings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), CallError> {
/// // The client here is a prefix; a real one is a connection with its prepared statement.
/// let greet = Blocking::new(
///     BlockingSettings::threads(2),
///     |_thread| Ok("hello ".to_owned()),
///     |client: &mut String, name: &String| Ok(vec![client.clone() + name]),
/// );
/// assert_eq!(greet.call(Arc::new("world".to_owned())).await?, ["hello world"]);
/// # Ok(()) }
/// ```
pub struct Blocking<I, O> {
    /// Gone when the threads are to end.
    jobs: Mutex<Sender<Job<I, O>>>,
    late: Arc<AtomicU64>,
    settings: BlockingSettings,
}

impl<I, O> fmt::Debug for Blocking<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<I, O> Blocking<I, O>
where
    I: Send + Sync + 'static,
    O: Send + 'static,
{
    /// Begins the threads. `connect` makes the client of a thread, by its number; `call` answers an input with it. The threads
    /// end when this is dropped, each behind the call that it is in.
    ///
    /// # Panics
    /// Panics if the system makes no thread.
    pub fn new<C, N, F>(settings: BlockingSettings, connect: N, call: F) -> Self
    where
        C: 'static,
        N: Fn(usize) -> Result<C, CallError> + Send + Sync + 'static,
        F: Fn(&mut C, &I) -> Called<O> + Send + Sync + 'static,
    {
        let (jobs, taken) = channel();
        let (taken, late) = (Arc::new(Mutex::new(taken)), Arc::new(AtomicU64::new(0)));
        let (connect, call) = (Arc::new(connect), Arc::new(call));
        for number in 0..settings.threads.max(1) {
            let (jobs, late) = (Arc::clone(&taken), Arc::clone(&late));
            let (connect, call) = (Arc::clone(&connect), Arc::clone(&call));
            let work = move || serve(&jobs, &late, || connect(number), &*call);
            let name = format!("{}-{number}", settings.name);
            let spawned = thread::Builder::new().name(name).spawn(work);
            // As `std::thread::spawn` does, and tokio for its own: without threads nothing would ever be answered.
            assert!(spawned.is_ok(), "a thread for blocking calls cannot be made: {spawned:?}");
        }
        Self { jobs: Mutex::new(jobs), late, settings }
    }
}

impl<I, O> AsyncFunction<I> for Blocking<I, O>
where
    I: Send + Sync + 'static,
    O: Send + 'static,
{
    type Output = O;

    fn call(&self, input: Arc<I>) -> impl Future<Output = Called<O>> + Send + 'static {
        let (answer, answered) = oneshot::channel();
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads outlive their jobs.
        jobs.send(Job { input, answer }).ok();
        async move { answered.await.unwrap_or_else(|_| Err(panicked())) }
    }

    fn late_results(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }
}

fn panicked() -> CallError {
    CallError::new(ErrorClass::Fatal, "the blocking call panicked")
}

/// Serves calls until nobody can make any more.
fn serve<I, O, C>(
    jobs: &Mutex<Receiver<Job<I, O>>>,
    late: &AtomicU64,
    connect: impl Fn() -> Result<C, CallError>,
    call: &dyn Fn(&mut C, &I) -> Called<O>,
) {
    let mut client = None;
    loop {
        // Held while waiting: the others wait for the lock instead, which is as good.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { input, answer }) = job else { return };
        if answer.is_closed() {
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| answered(&mut client, &connect, call, &input)));
        let outcome = outcome.unwrap_or_else(|_| {
            client = None;
            Err(panicked())
        });
        if answer.send(outcome).is_err() {
            late.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn answered<I, O, C>(
    client: &mut Option<C>,
    connect: impl Fn() -> Result<C, CallError>,
    call: &dyn Fn(&mut C, &I) -> Called<O>,
    input: &I,
) -> Called<O> {
    let connected = match client {
        Some(connected) => connected,
        None => client.insert(connect()?),
    };
    let outcome = call(connected, input);
    if matches!(&outcome, Err(error) if error.class == ErrorClass::Reconnect) {
        *client = None;
    }
    outcome
}
