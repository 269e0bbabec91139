//! Everything there is, and what may happen next.

use levada_core::CheckpointId;
use stateright::{Model, Property};

use super::broker::Broker;
use super::names::{Handle, Id};
use super::promises;
use super::store::{Chosen, Store};

/// How large the world is, what goes wrong in it, and which protections are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How many processes are started, one after the other. Each may stand still anywhere, for ever or until it wakes up.
    pub(crate) processes: usize,
    /// How many intervals the source has.
    pub(crate) intervals: u8,
    /// How many transactions brokers time out.
    pub(crate) timeouts: u8,
    /// How many ids somebody else initialises.
    pub(crate) strangers: u8,
    /// How many checkpoints are declined.
    pub(crate) declines: u8,
    /// Whether it may become late.
    pub(crate) becomes_late: bool,
    /// Whether transactions write markers.
    pub(crate) has_markers: bool,
    /// Whether the store creates an entry only if its number is free.
    pub(crate) is_put_conditional: bool,
    pub(crate) recovery: Recovery,
    /// Whether each transaction has an epoch for itself.
    pub(crate) has_fresh_epochs: bool,
    /// Whether a slot is used again before it is on record that its transaction is resolved.
    pub(crate) is_slot_freed_early: bool,
}

/// What a start does first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// As it should: asks, decides, acts, and fences last.
    Verified,
    /// Initialises the ids of the checkpoint, as a producer does that knows nothing of it, and goes on.
    InitInstead,
    /// Initialises the ids of the checkpoint, then asks, decides and acts.
    InitFirst,
}

pub(crate) const WHOLE: Terms = Terms {
    processes: 2,
    intervals: 2,
    timeouts: 0,
    strangers: 0,
    declines: 0,
    becomes_late: false,
    has_markers: true,
    is_put_conditional: true,
    recovery: Recovery::Verified,
    has_fresh_epochs: true,
    is_slot_freed_early: false,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) broker: Broker,
    pub(crate) processes: Vec<Process>,
    pub(crate) is_late: bool,
    pub(crate) timeouts: u8,
    pub(crate) strangers: u8,
    pub(crate) declines: u8,
    /// What was done that must never be, and leaves no other trace.
    pub(crate) offences: Vec<Offence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Offence {
    /// A start initialised an id that an unresolved handle names.
    FencedUnresolved(Id),
    /// A start initialised an id of a later attempt.
    FencedLater(Id),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) attempt: u8,
    /// How many entries of the log it knows of.
    pub(crate) known: usize,
    /// The sequence of its next checkpoint.
    pub(crate) sequence: u64,
    /// What its start goes on from.
    pub(crate) chosen: Chosen,
    /// What waits for its commit.
    pub(crate) pending: Vec<Handle>,
    /// What was begun for the next interval.
    pub(crate) open: Vec<Handle>,
    /// How often it has started again.
    pub(crate) restarts: u8,
    pub(crate) phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Not there yet.
    Waiting,
    Choosing,
    /// Has asked about so many handles of the checkpoint.
    Inspecting {
        found: Vec<levada_core::template::Fate>,
    },
    Noting {
        to: Option<CheckpointId>,
    },
    /// Has still to drop these.
    Dropping {
        left: Vec<Handle>,
    },
    /// Knows what to fence, once it has listed.
    Fencing {
        listed: Option<Vec<Id>>,
    },
    /// Writes an interval.
    Running {
        interval: u8,
    },
    Completing {
        interval: u8,
        id: CheckpointId,
    },
    /// Has committed so many.
    Committing {
        interval: u8,
        id: CheckpointId,
        done: usize,
    },
    Resolving {
        interval: u8,
        id: CheckpointId,
    },
    /// At the end of the source.
    Done,
    /// Has found out that it was taken over.
    TakenOver,
    /// The engine refuses to start from this log.
    Refused,
    /// A human must decide about this checkpoint.
    Stopped {
        why: Why,
        checkpoint: CheckpointId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    Torn,
    Unknown,
    VisibleAfterAll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A process does its next step.
    Step(usize),
    /// A process begins the next interval while the last one waits for its commit.
    BeginAhead(usize),
    /// A checkpoint is declined; the job goes on.
    Decline(usize),
    /// A broker drops a transaction.
    TimeOut(Id),
    /// Somebody initialises one of our ids.
    Meddle(Id),
    /// Our clock goes on.
    BecomeLate,
}

impl World {
    fn begins(terms: &Terms) -> Self {
        let waiting = Process {
            attempt: 0,
            known: 0,
            sequence: 1,
            chosen: Chosen::default(),
            pending: Vec::new(),
            open: Vec::new(),
            restarts: 0,
            phase: Phase::Waiting,
        };
        World {
            store: Store::default(),
            broker: Broker::default(),
            processes: vec![waiting; terms.processes],
            is_late: false,
            timeouts: terms.timeouts,
            strangers: terms.strangers,
            declines: terms.declines,
            offences: Vec::new(),
        }
    }

    /// Processes start in their order: nobody can tell two apart that have not begun.
    fn may_step(&self, process: usize) -> bool {
        match self.processes[process].phase {
            Phase::Done | Phase::TakenOver | Phase::Refused | Phase::Stopped { .. } => false,
            Phase::Waiting => process == 0 || self.processes[process - 1].phase != Phase::Waiting,
            _ => true,
        }
    }

    fn may_begin_ahead(&self, process: usize, terms: &Terms) -> bool {
        let process = &self.processes[process];
        let last = match process.phase {
            Phase::Completing { interval, .. }
            | Phase::Committing { interval, .. }
            | Phase::Resolving { interval, .. } => interval,
            _ => return false,
        };
        // Not while a start resolves what it was given: subtasks are not open yet.
        process.open.is_empty() && last < terms.intervals && process.sequence > 1
    }

    fn may_decline(&self, process: usize, terms: &Terms) -> bool {
        let is_last = |interval| interval == terms.intervals;
        let phase = &self.processes[process].phase;
        self.declines > 0 && matches!(phase, Phase::Completing { interval, .. } if !is_last(*interval))
    }
}

impl Model for Terms {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::begins(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for process in 0..world.processes.len() {
            if world.may_step(process) {
                actions.push(Action::Step(process));
            }
            if world.may_begin_ahead(process, self) {
                actions.push(Action::BeginAhead(process));
            }
            if world.may_decline(process, self) {
                actions.push(Action::Decline(process));
            }
        }
        if world.timeouts > 0 {
            actions.extend(world.broker.ongoing().map(Action::TimeOut));
        }
        if world.strangers > 0 {
            actions.extend(world.broker.ids.keys().copied().map(Action::Meddle));
        }
        if self.becomes_late && !world.is_late {
            actions.push(Action::BecomeLate);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Step(process) => next.step(process, self),
            Action::BeginAhead(process) => next.begin_ahead(process, self),
            Action::Decline(process) => next.decline(process),
            Action::TimeOut(id) => {
                next.timeouts -= 1;
                next.broker.expire(id);
            }
            Action::Meddle(id) => {
                next.strangers -= 1;
                next.broker.init(id);
            }
            Action::BecomeLate => next.is_late = true,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all()
    }
}
