//! A container from its start to its removal.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testcontainers::bollard::Docker;
use testcontainers::bollard::errors::Error as Refusal;
use testcontainers::bollard::models::HostConfig;
use testcontainers::bollard::query_parameters::RemoveContainerOptionsBuilder;
use testcontainers::core::Mount;
use testcontainers::core::client::ClientError;
use testcontainers::runners::AsyncRunner;
use testcontainers::{
    ContainerAsync, ContainerRequest, CopyTargetOptions, GenericImage, ImageExt, TestcontainersError,
};

use super::Spec;
use super::engine::{agree_in_a_hook, connect, wait_on};
use super::follower::Follower;
use crate::Error;
use crate::error::Cause;
use crate::logs::Log;
use crate::names::unique_name;
use crate::process::{ended_early, forget_container, register_container};
use crate::wait::wait_for;

/// How long after the end of its output the engine may still call a container running.
const JUST_ENDED: Duration = Duration::from_secs(10);

/// As for `/tmp`: who the server runs as is the image's affair. Older engines give a folder that the image has the
/// permissions that it has there.
const EVERYBODY_MAY_WRITE: i64 = 0o1777;

/// A container that we started. It is removed with its volumes when this is dropped, or by the reaper.
///
/// Every method takes `&self`: one thread may kill the server while another talks to it.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) spec: Spec,
    pub(super) name: String,
    pub(super) client: Docker,
    /// Held for the whole of an operation: a restart cannot overtake a stop.
    life: Mutex<Life>,
}

/// What changes while a container lives.
#[derive(Debug)]
pub(super) struct Life {
    /// What testcontainers made; `None` before and after.
    made: Option<ContainerAsync<GenericImage>>,
    /// Of the present or last run; `None` until it has one.
    follower: Option<Follower>,
    /// How many bytes of output are in the log from runs before.
    seen: u64,
}

impl Container {
    /// Starts a container and returns when its server is ready. The reaper hears of it before the engine does.
    ///
    /// # Errors
    ///
    /// [`Error::Engine`], [`Error::RemoteEngine`], [`Error::Missing`] (the reaper needs the engine's command line client),
    /// [`Error::Image`]; otherwise as for a server process, with the end of the log.
    pub(super) fn start(spec: Spec) -> Result<Container, Error> {
        let engine = connect()?;
        let name = unique_name(spec.prefix);
        register_container(&name, &engine.address)?;
        let life = Life { made: None, follower: None, seen: 0 };
        // From here on a failure removes what the engine has made of it.
        let container = Container { spec, name, client: engine.client, life: Mutex::new(life) };
        let mut life = container.life();
        life.made = Some(container.make()?);
        container.become_ready(&mut life)?;
        drop(life);
        Ok(container)
    }

    /// Returns the name by which the engine knows the container.
    #[cfg(test)]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn life(&self) -> MutexGuard<'_, Life> {
        // A thread that panicked while it held the lock left values that each say something true by themselves.
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates and starts the container, without waiting for its server.
    fn make(&self) -> Result<ContainerAsync<GenericImage>, Error> {
        let request = request(&self.spec, &self.name);
        wait_on(request.start())?.map_err(|error| match error {
            TestcontainersError::Client(ClientError::PullImage { err, .. }) => Error::Image {
                image: self.spec.image.reference.clone(),
                variable: self.spec.image.variable,
                source: err.into(),
            },
            other => self.failed("start", other.into()),
        })
    }

    /// Follows the log of a run that has just begun, and waits until the server is ready.
    pub(super) fn become_ready(&self, life: &mut Life) -> Result<(), Error> {
        let log = Log::from_now(self.spec.server, self.spec.log.clone());
        let follower = Follower::start(&self.client, &self.name, &self.spec.log, life.seen)?;
        let outcome = wait_for(self.spec.patience, || {
            if follower.has_ended() {
                return Some(self.why_ended(&log));
            }
            self.spec.ready.holds(&log).then_some(Ok(()))
        });
        life.follower = Some(follower);
        outcome.unwrap_or_else(|| {
            Err(Error::NotReady { server: self.spec.server, after: self.spec.patience, log: log.tail() })
        })
    }

    /// Takes note of a run that has ended: all its output is in the log now.
    pub(super) fn settle(life: &mut Life) -> Result<(), Error> {
        if let Some(follower) = life.follower.take() {
            life.seen = follower.join()?;
        }
        Ok(())
    }

    /// Returns why the log of a server that is not ready has come to an end.
    fn why_ended(&self, log: &Log) -> Result<(), Error> {
        let Some(code) = self.ended_within(JUST_ENDED)? else {
            return Err(self.failed("follow the log of", "it goes on without telling its output".into()));
        };
        // A status in the form of wait(2): a container's exit code says 128 and the number for a signal.
        let status = ExitStatus::from_raw(code << 8);
        Err(ended_early(self.spec.server, status, log))
    }

    pub(super) fn failed(&self, action: &'static str, source: Cause) -> Error {
        Error::Container { server: self.spec.server, action, source }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let made = self.life.get_mut().unwrap_or_else(PoisonError::into_inner).made.take();
        let (client, name) = (self.client.clone(), self.name.clone());
        // What cannot be removed now, the reaper tries again at the end of this process.
        if let Ok(true) = wait_on(remove(client, name, made)) {
            forget_container(&self.name);
        }
    }
}

/// Removes the container and its volumes, and tells whether there is none left.
async fn remove(client: Docker, name: String, made: Option<ContainerAsync<GenericImage>>) -> bool {
    if let Some(made) = made {
        return made.rm().await.is_ok();
    }
    // Testcontainers forgets what it has created when a later step of the start fails.
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match client.remove_container(&name, Some(options)).await {
        Ok(()) => true,
        Err(Refusal::DockerResponseServerError { status_code, .. }) => status_code == 404,
        Err(_) => false,
    }
}

fn request(spec: &Spec, name: &str) -> ContainerRequest<GenericImage> {
    let (image, tag) = spec.image.name_and_tag();
    let mut request = GenericImage::new(image, tag).with_container_name(name).with_cmd(&spec.command);
    request = request.with_host_config_modifier(|host: &mut HostConfig| {
        agree_in_a_hook();
        host.network_mode = Some("host".to_owned());
        // The machine's network has nothing to publish.
        host.publish_all_ports = None;
    });
    for (variable, value) in &spec.env {
        request = request.with_env_var(variable, value);
    }
    for file in &spec.files {
        let target = CopyTargetOptions::new(&file.path).with_mode(file.mode);
        request = request.with_copy_to(target, file.contents.clone());
    }
    for folder in &spec.tmpfs {
        request = request.with_mount(Mount::tmpfs_mount(folder).with_mode(EVERYBODY_MAY_WRITE));
    }
    request
}
