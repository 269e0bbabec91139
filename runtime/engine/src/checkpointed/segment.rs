//! A part of a flow that runs in one task per subtask, and how it is wired to the parts before and behind it.

use levada_core::time::WatermarkStrategy;

use super::async_map::CallHead;
use super::inlet::Inlet;
use super::launch::Launch;
use super::middle_task::MiddleTask;
use super::outlet::Outlet;
use super::relay::Through;
use super::source_task::{SourceFeed, SourceTask};
use crate::job::Make;
use crate::map::{Chain, FlatMap, Identity, Then};
use crate::time::Timed;

/// What the tasks of a segment read from, one for each subtask.
pub(super) enum Feeds<I> {
    Sources(Vec<SourceFeed<I>>),
    Inlets(Vec<Inlet<I>>),
    Calls(Vec<Box<dyn CallHead<I>>>),
}

/// Where a segment has its elements from. `L` is what its line begins with.
pub(super) trait Inflow<I, L>: Send {
    /// Spawns everything in front of the segment.
    fn open(&self, launch: &mut Launch<'_>, line: L) -> Feeds<I>;
}

/// The tasks in front of an exchange.
pub(super) trait Upstream<T, L>: Send {
    /// Spawns them; subtask `n` sends into outlet `n`.
    fn spawn(&self, launch: &mut Launch<'_>, line: L, outlets: Vec<Outlet<T>>);
}

type Wire<I, T> = Box<dyn Fn(&mut Launch<'_>, Vec<Outlet<T>>) -> Vec<Outlet<I>> + Send>;

/// What is done to the elements of a segment.
pub(super) enum Steps<I, T> {
    /// Records are turned into others.
    Chain(Make<Box<dyn Chain<I, T>>>),
    /// Lines part, too: wires a task's input to where it goes on, and spawns the branches.
    Wired(Wire<I, T>),
}

impl<T: Send + 'static> Steps<T, T> {
    pub(super) fn none() -> Self {
        Steps::Chain(Box::new(|_| Box::new(Identity)))
    }
}

impl<I: Send + 'static, T: Send + 'static> Steps<I, T> {
    /// Adds a step.
    pub(super) fn then<O, M, F>(self, make: F) -> Steps<I, O>
    where
        O: Send + 'static,
        M: FlatMap<T, O> + 'static,
        F: Fn(u32) -> M + Send + 'static,
    {
        match self {
            Steps::Chain(make_before) => Steps::Chain(Box::new(move |subtask| {
                Box::new(Then::new(make_before(subtask), make(subtask)))
            })),
            Steps::Wired(wire) => {
                let step = Steps::<T, T>::none().then(make);
                Steps::Wired(Box::new(move |launch, outlets| {
                    let behind = step.wire(launch, outlets);
                    wire(launch, behind)
                }))
            }
        }
    }

    /// Keeps time behind the steps so far.
    pub(super) fn timed(self, strategy: WatermarkStrategy<T>) -> Self {
        match self {
            Steps::Chain(make_before) => Steps::Chain(Box::new(move |subtask| {
                Box::new(Timed::by(strategy.clone(), make_before(subtask)))
            })),
            Steps::Wired(wire) => {
                let step = Steps::<T, T>::none().timed(strategy);
                Steps::Wired(Box::new(move |launch, outlets| {
                    let behind = step.wire(launch, outlets);
                    wire(launch, behind)
                }))
            }
        }
    }

    /// Adds what needs the tasks behind: `wire` turns the outlets of what follows into those of what was there.
    pub(super) fn then_wire<O, F>(self, wire: F) -> Steps<I, O>
    where
        F: Fn(&mut Launch<'_>, Vec<Outlet<O>>) -> Vec<Outlet<T>> + Send + 'static,
    {
        Steps::Wired(Box::new(move |launch, outlets| {
            let behind = wire(launch, outlets);
            self.wire(launch, behind)
        }))
    }

    /// Returns outlets for what the tasks read; what has become of it goes into `outlets`.
    pub(super) fn wire(&self, launch: &mut Launch<'_>, outlets: Vec<Outlet<T>>) -> Vec<Outlet<I>> {
        match self {
            Steps::Chain(make) => {
                let through = |(subtask, to)| Outlet::Relay(Box::new(Through::new(make(subtask), to)));
                (0..).zip(outlets).map(through).collect()
            }
            Steps::Wired(wire) => wire(launch, outlets),
        }
    }
}

pub(super) struct Segment<I, T, L> {
    pub(super) inflow: Box<dyn Inflow<I, L>>,
    pub(super) steps: Steps<I, T>,
}

impl<I: Send + 'static, T: Send + 'static, L> Upstream<T, L> for Segment<I, T, L> {
    fn spawn(&self, launch: &mut Launch<'_>, line: L, outlets: Vec<Outlet<T>>) {
        let feeds = self.inflow.open(launch, line);
        let outlets = self.steps.wire(launch, outlets);
        spawn_tasks(launch, feeds, outlets);
    }
}

/// Spawns the tasks of a segment.
pub(super) fn spawn_tasks<I: Send + 'static>(
    launch: &mut Launch<'_>,
    feeds: Feeds<I>,
    outlets: Vec<Outlet<I>>,
) {
    match feeds {
        Feeds::Sources(sources) => {
            for (feed, outlet) in sources.into_iter().zip(outlets) {
                let subtask = feed.participant.subtask;
                let (events, cancel) = (launch.events.clone(), launch.cancel.clone());
                launch.tasks.spawn(subtask, SourceTask { feed, outlet, events, cancel }.run());
            }
        }
        Feeds::Calls(heads) => {
            for (subtask, (head, outlet)) in (0..).zip(heads.into_iter().zip(outlets)) {
                head.spawn(launch, subtask, outlet);
            }
        }
        Feeds::Inlets(inlets) => {
            for (subtask, (inlet, outlet)) in (0..).zip(inlets.into_iter().zip(outlets)) {
                let task = MiddleTask { inlet, outlet, cancel: launch.cancel.clone() };
                launch.tasks.spawn(subtask, task.run());
            }
        }
    }
}
