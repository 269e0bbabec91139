//! Threads for what blocks.

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::Producer as _;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::error::{ClientError, ProduceError};
use super::reports::Client;

/// How long one poll of the client runs. Reports are handled as they come; only the end of the thread waits so long.
const POLL: Duration = Duration::from_millis(50);

/// Runs a call that can block on a thread of its own. When it does not come to its end in time, the thread is left to
/// itself, and what it comes to is dropped there.
pub(super) async fn on_own_thread<V: Send + 'static>(
    doing: &'static str,
    within: Duration,
    work: impl FnOnce() -> V + Send + 'static,
) -> Result<V, ProduceError> {
    let (tell, told) = oneshot::channel();
    let run = move || drop(tell.send(work()));
    Builder::new().name("kafka-sink-call".to_owned()).spawn(run).map_err(|error| of_spawn(&error))?;
    match timeout(within, told).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(ProduceError::Lost { doing }),
        Err(_) => Err(ProduceError::Stuck { doing, within }),
    }
}

/// Starts the thread that polls the client until nobody else holds it, and destroys it then: destroying blocks, so it must
/// never be a thread of the runtime that lets go last. The receiver ends with the thread.
pub(super) fn start_polling(client: Arc<Client>) -> Result<oneshot::Receiver<()>, ProduceError> {
    let (ended, end) = oneshot::channel::<()>();
    let run = move || {
        poll(&client);
        drop(client);
        drop(ended);
    };
    Builder::new().name("kafka-sink-poll".to_owned()).spawn(run).map_err(|error| of_spawn(&error))?;
    Ok(end)
}

fn poll(client: &Arc<Client>) {
    let mut is_fatal = false;
    // Only holders of a reference can make another one: at one there is only ours.
    while Arc::strong_count(client) > 1 {
        client.poll(POLL);
        if let Some((code, text)) = client.client().fatal_error().filter(|_| !is_fatal) {
            is_fatal = true;
            client.context().ledger.fail(ProduceError::of_fatal(ClientError { code, text }));
        }
    }
}

fn of_spawn(error: &io::Error) -> ProduceError {
    ProduceError::Start(ClientError { code: RDKafkaErrorCode::Fail, text: format!("no thread: {error}") })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// [KSK-06] a call of the client that hangs is given up in time; what it comes to later is dropped on its own thread.
    #[tokio::test(start_paused = true)]
    async fn call_that_hangs_is_left_to_its_thread() {
        let (hold, held) = mpsc::channel::<()>();
        let (dropped, was_dropped) = mpsc::channel::<std::thread::ThreadId>();
        let hangs = move || {
            held.recv().expect_err("nothing is sent");
            TellsItsDrop(dropped)
        };
        let stuck = on_own_thread("hanging", Duration::from_secs(9), hangs).await;
        assert!(matches!(stuck, Err(ProduceError::Stuck { doing: "hanging", .. })));
        drop(hold);
        assert_ne!(was_dropped.recv().expect("dropped"), std::thread::current().id());
    }

    #[derive(Debug)]
    struct TellsItsDrop(mpsc::Sender<std::thread::ThreadId>);

    impl Drop for TellsItsDrop {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).expect("the test waits");
        }
    }

    /// [KSK-06] a panic on a thread of the sink's is no endless wait.
    #[tokio::test]
    async fn call_that_panics_is_noticed_at_once() {
        let lost =
            on_own_thread("panicking", Duration::from_secs(3600), || -> () { panic!("on purpose") }).await;
        assert!(matches!(lost, Err(ProduceError::Lost { doing: "panicking" })));
    }
}
