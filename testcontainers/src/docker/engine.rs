//! The container engine: where it listens, what it speaks, and the runtime that talks with it.

use std::env;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use testcontainers::bollard::Docker;
use testcontainers::core::client::docker_client_instance;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::block_in_place;

use crate::Error;
use crate::error::{Cause, Doing};

/// An engine that answers.
#[derive(Debug)]
pub(super) struct Engine {
    /// Its address, for the reaper.
    pub(super) address: String,
    pub(super) client: Docker,
}

/// Finds the engine of this machine and agrees with it on a version of its interface.
pub(super) fn connect() -> Result<Engine, Error> {
    let address = local(address())?;
    match wait_on(agreed())? {
        Ok(client) => Ok(Engine { address, client }),
        Err(source) => Err(Error::Engine { address, source }),
    }
}

/// Returns a client that speaks a version the engine understands.
async fn agreed() -> Result<Docker, Cause> {
    let client = docker_client_instance().await?;
    Ok(client.negotiate_version().await?)
}

/// Makes testcontainers' own client of the moment speak a version that the engine understands.
///
/// It starts with the newest version and never asks, so that an engine of a stable distribution refuses every request. It
/// is made at the beginning of a start and shares its version with our clones of it; the one place of ours that runs
/// between that and its first request is the hook that changes the host's part of the configuration.
pub(super) fn agree_in_a_hook() {
    // The hook is no asynchronous function, but runs on a thread of our runtime. An engine that does not answer will not
    // answer the next request either, and that one's error is shown.
    block_in_place(|| Handle::current().block_on(agreed())).ok();
}

/// Returns the address that testcontainers uses: `DOCKER_HOST`, else the first of the usual sockets that exists.
fn address() -> String {
    env::var("DOCKER_HOST").unwrap_or_else(|_| format!("unix://{}", usual_socket().display()))
}

fn usual_socket() -> PathBuf {
    let system = PathBuf::from("/var/run/docker.sock");
    let below = |variable: &str, path: &str| Some(PathBuf::from(env::var_os(variable)?).join(path));
    let others = [
        below("XDG_RUNTIME_DIR", ".docker/run/docker.sock"),
        below("HOME", ".docker/run/docker.sock"),
        below("HOME", ".docker/desktop/docker.sock"),
    ];
    let found = std::iter::once(Some(system.clone())).chain(others).flatten().find(|socket| socket.exists());
    found.unwrap_or(system)
}

/// Refuses an engine that may be on another machine: its 127.0.0.1 would be another one.
fn local(address: String) -> Result<String, Error> {
    if address.starts_with("unix://") { Ok(address) } else { Err(Error::RemoteEngine { address }) }
}

/// Runs a future on our runtime and waits for its result, on any thread, also on one of somebody's runtime.
pub(super) fn wait_on<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let (answer, answered) = sync_channel(1);
    // On the heap: some of the client's futures are large.
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    runtime()?.spawn(async move {
        // The receiver below waits.
        answer.send(future.await).ok();
    });
    // The sender is dropped without a word when the future panics.
    answered.recv().map_err(|_| Error::Io {
        action: "talk with the container engine".to_owned(),
        source: std::io::Error::other("the task panicked"),
    })
}

/// Returns the runtime, starting it at the first call. It ends with the process.
pub(super) fn runtime() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    // A thread that panicked in here left either a runtime or none.
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = runtime.as_ref() {
        return Ok(runtime.handle().clone());
    }
    // Two threads: one may be held by the hook above while the other serves it.
    let made =
        Builder::new_multi_thread().worker_threads(2).thread_name("levada-docker").enable_all().build();
    let made = made.doing("start", Path::new("a runtime"))?;
    let handle = made.handle().clone();
    *runtime = Some(made);
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::{Error, local};

    /// [TST-02]
    #[test]
    fn an_engine_on_another_machine_is_refused() {
        for address in ["tcp://10.0.0.1:2375", "ssh://somebody@elsewhere", "http://127.0.0.1:2375", ""] {
            let error = local(address.to_owned()).unwrap_err();
            assert!(matches!(error, Error::RemoteEngine { .. }), "{error}");
            assert!(error.to_string().contains("DOCKER_HOST"), "{error}");
        }
        local("unix:///var/run/docker.sock".to_owned()).unwrap();
    }
}
