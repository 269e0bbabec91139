//! The death of a process, at a chosen call of its sink.
//!
//! The suite stands between the driver and the sink and counts calls. A process that dies *before* a call never makes it;
//! one that dies *after* it has made it and never learns the outcome. From then on no call gets through, and the drivers
//! are dropped without being closed.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_core::{ErrorChain, ErrorClass, SinkError};

/// On which side of a call a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Before,
    After,
}

pub(crate) const SIDES: [Side; 2] = [Side::Before, Side::After];

#[derive(Debug, Default)]
struct State {
    lit: Option<(u32, Side)>,
    is_dead: bool,
    has_burnt: bool,
    trail: Vec<String>,
}

/// Counts the calls of all sinks of a process, and writes down what happens. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fuse(Arc<Mutex<State>>);

/// A call that was let through.
#[must_use]
#[derive(Debug)]
pub(crate) struct Call {
    fuse: Fuse,
    dies: bool,
}

fn death() -> SinkError {
    SinkError::new(ErrorClass::Fatal, "the process has died")
}

impl Fuse {
    // Nobody panics with the lock held; and if somebody did, the state would still say what happened.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the process die at the call behind so many others.
    pub(crate) fn light(&self, calls: u32, side: Side) {
        self.note(format!("the process will die {side:?} call {} from here", calls + 1));
        self.state().lit = Some((calls, side));
    }

    /// Tells whether a process has ever died at a call.
    pub(crate) fn has_burnt(&self) -> bool {
        self.state().has_burnt
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().is_dead
    }

    /// Another process starts, for which nothing is planned.
    pub(crate) fn revive(&self) {
        let mut state = self.state();
        (state.lit, state.is_dead) = (None, false);
    }

    pub(crate) fn note(&self, what: impl Into<String>) {
        self.state().trail.push(what.into());
    }

    pub(crate) fn trail(&self) -> Vec<String> {
        self.state().trail.clone()
    }

    pub(crate) fn enter(&self, call: impl Display) -> Result<Call, SinkError> {
        if self.is_dead() {
            return Err(death());
        }
        let side = self.burn();
        match side {
            None => self.note(format!("    {call}")),
            Some(side) => self.note(format!("    † {side:?} {call}")),
        }
        match side {
            Some(Side::Before) => Err(death()),
            side => Ok(Call { fuse: self.clone(), dies: side.is_some() }),
        }
    }

    fn burn(&self) -> Option<Side> {
        let mut state = self.state();
        let (calls, side) = state.lit?;
        if calls > 0 {
            state.lit = Some((calls - 1, side));
            return None;
        }
        (state.lit, state.is_dead, state.has_burnt) = (None, true, true);
        Some(side)
    }
}

impl Call {
    /// Ends the call: its outcome gets through, unless the process has died meanwhile.
    pub(crate) fn leave<V>(self, outcome: Result<V, SinkError>) -> Result<V, SinkError> {
        if let Err(error) = &outcome {
            self.fuse.note(format!("      {}", ErrorChain(error)));
        }
        if self.dies { Err(death()) } else { outcome }
    }
}
