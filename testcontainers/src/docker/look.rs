//! Looking at a container, and into it.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::time::Duration;

use futures_util::StreamExt;
use testcontainers::bollard::Docker;
use testcontainers::bollard::container::LogOutput;
use testcontainers::bollard::errors::Error as Refusal;
use testcontainers::bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use testcontainers::bollard::models::ContainerState;
use testcontainers::bollard::query_parameters::{InspectContainerOptions, WaitContainerOptions};
use tokio::time::timeout;

use super::Container;
use super::engine::wait_on;
use crate::Error;

impl Container {
    /// Tells whether the container runs; a paused one does.
    pub(super) fn is_running(&self) -> bool {
        self.state().is_ok_and(|state| state.running.unwrap_or_default())
    }

    /// Returns the number of the container's main process on this machine, or `None` when it is not running.
    pub(super) fn pid(&self) -> Option<i32> {
        let pid = self.state().ok()?.pid?;
        i32::try_from(pid).ok().filter(|pid| *pid != 0)
    }

    /// Runs a command in the container, as the container's user, and returns its output and how it ended.
    pub(super) fn exec(&self, command: &[&str]) -> Result<Output, Error> {
        let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
        let (client, name) = (self.client.clone(), self.name.clone());
        self.ask("run a command in", run_inside(client, name, command))
    }

    pub(super) fn state(&self) -> Result<ContainerState, Error> {
        let (client, name) = (self.client.clone(), self.name.clone());
        let found = self.ask("look at", async move {
            client.inspect_container(&name, None::<InspectContainerOptions>).await
        })?;
        Ok(found.state.unwrap_or_default())
    }

    /// Waits until the container is not running and returns its exit code; `None` when `patience` is over.
    pub(super) fn ended_within(&self, patience: Duration) -> Result<Option<i32>, Error> {
        let waiting = exit_code(self.client.clone(), self.name.clone());
        let code = self.ask("wait for", async move { timeout(patience, waiting).await.ok().transpose() })?;
        // An exit code has eight bits.
        Ok(code.map(|code| i32::try_from(code).unwrap_or(i32::from(u8::MAX))))
    }

    /// Waits for the engine's answer; `action` is what was asked for, as a verb before "the container".
    pub(super) fn ask<T: Send + 'static>(
        &self,
        action: &'static str,
        question: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Error> {
        wait_on(question)?.map_err(|refusal| self.failed(action, refusal.into()))
    }
}

async fn exit_code(client: Docker, name: String) -> Result<i64, Refusal> {
    let mut answers = Box::pin(client.wait_container(&name, None::<WaitContainerOptions>));
    match answers.next().await {
        Some(Ok(answer)) => Ok(answer.status_code),
        // The client takes every code but 0 for an error of its own.
        Some(Err(Refusal::DockerContainerWaitError { code, .. })) => Ok(code),
        Some(Err(refusal)) => Err(refusal),
        None => Ok(0),
    }
}

async fn run_inside(client: Docker, name: String, command: Vec<String>) -> Result<Output, Refusal> {
    let options = CreateExecOptions {
        cmd: Some(command),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..Default::default()
    };
    let id = client.create_exec(&name, options).await?.id;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    if let StartExecResults::Attached { mut output, .. } =
        client.start_exec(&id, None::<StartExecOptions>).await?
    {
        while let Some(chunk) = output.next().await {
            match chunk? {
                LogOutput::StdErr { message } => stderr.extend_from_slice(&message),
                other => stdout.extend_from_slice(other.as_ref()),
            }
        }
    }
    // Its output ends with it, and the engine has noted its end by then.
    let code = client.inspect_exec(&id).await?.exit_code.unwrap_or_default();
    let status = ExitStatus::from_raw(i32::try_from(code).unwrap_or_default() << 8);
    Ok(Output { status, stdout, stderr })
}
