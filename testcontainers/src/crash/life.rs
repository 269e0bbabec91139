//! One life of the child: started, watched, killed.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::place::{KILL_AT, last_words, place};
use super::{End, Outcome, Plan};
use crate::Error;
use crate::error::{Cause, Doing};
use crate::logs::{Log, ShownLog};
use crate::process::{EndWith, ServerProcess, mark, register_process};
use crate::wait::wait_for;

/// The child while it lives. Killed when dropped; the reaper kills it when the parent is gone.
#[derive(Debug)]
pub struct Life {
    number: u32,
    plan: Plan,
    /// The name in messages.
    title: String,
    process: ServerProcess,
    log: ShownLog,
}

impl Life {
    /// Starts the child, with both outputs into a file of `folder`.
    pub(super) fn start(
        title: String,
        number: u32,
        plan: Plan,
        mut command: Command,
        folder: &Path,
    ) -> Result<Life, Error> {
        let path = folder.join(format!("life-{number}.log"));
        let (out, err) = (open(&path)?, open(&path)?);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        match &plan {
            Plan::AtPoint { point, passing } => command.env(KILL_AT, place(point, *passing)),
            // What the parent itself was told is not for the child.
            Plan::AtMoment { .. } => command.env_remove(KILL_AT),
        };
        // From its first moment on: it is not started behind a gate as servers are, because a command does not tell
        // everything that it was given.
        mark(&mut command)?;
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().doing("start", &program)?;
        let process = ServerProcess::new("the child", child)?;
        // Were it to lose its mark, this is left.
        register_process(process.identity(), EndWith::Kill)?;
        let log = ShownLog(Log::whole(title.clone(), path));
        Ok(Life { number, plan, title, process, log })
    }

    /// Returns its number, counted from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns how it is to end.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.identity().pid
    }

    /// Returns what it has written so far, standard output and standard error in one.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.0.read()
    }

    /// Tells whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Waits until its log holds `text`, or it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if it holds no such text within `patience` or at the end.
    pub fn wait_for_log(&mut self, text: &str, patience: Duration) -> Result<(), Error> {
        wait_for(patience, || (self.log().contains(text) || self.has_ended()).then_some(()));
        match self.log().contains(text) {
            true => Ok(()),
            false => Err(Error::TimedOut {
                what: format!("{text:?} in the log of {}", self.title),
                after: patience,
            }),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] if it goes on after `patience`.
    pub fn wait_for_end(&mut self, patience: Duration) -> Result<(), Error> {
        match self.ends_within(patience) {
            Some(_) => Ok(()),
            None => Err(Error::TimedOut { what: format!("the end of {}", self.title), after: patience }),
        }
    }

    pub(super) fn ends_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        wait_for(patience, || self.process.ended())
    }

    /// Kills it and returns how it ended: it may have been faster.
    pub(super) fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.process.kill();
        self.process.wait(Duration::ZERO)
    }

    /// Tells whether it says that it sent the signal itself.
    pub(super) fn has_last_words(&self) -> bool {
        match &self.plan {
            Plan::AtPoint { point, passing } => self.log().contains(&last_words(&place(point, *passing))),
            Plan::AtMoment { .. } => false,
        }
    }

    pub(super) fn ended_by_itself(&self, status: ExitStatus) -> Error {
        Error::EndedByItself { life: self.title.clone(), status, log: self.log.0.tail() }
    }

    pub(super) fn complaint(&self, who: &'static str, source: Cause) -> Error {
        Error::Complaint { who, life: self.title.clone(), source }
    }

    pub(super) fn outcome(&self, end: End) -> Outcome {
        Outcome { number: self.number, plan: self.plan.clone(), end, log: self.log() }
    }

    pub(super) fn show_log(&self) {
        self.log.0.show();
    }

    /// Removes the log of a life that nobody complains of: there may be thousands.
    pub(super) fn forget(self) {
        fs::remove_file(self.log.0.path()).ok();
    }
}

fn open(path: &Path) -> Result<File, Error> {
    OpenOptions::new().create(true).append(true).open(path).doing("open the log", path)
}
