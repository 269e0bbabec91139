//! What the consumer's thread does when it is told to: assign, take out, seek, pause and resume.

use levada_core::time::{Pause, SplitEvent};
use levada_core::{Position, SplitId};
use rdkafka::consumer::Consumer;
use rdkafka::{Offset, TopicPartitionList};

use super::client::{at_offsets, partitions};
use super::error::ReadError;
use super::handover::{Command, Handover, ReadingId};
use super::reader::{Flow, Next, Reader};
use super::splits::Reading;

impl Reader {
    pub(super) fn apply_commands(&mut self) -> Result<Next, ReadError> {
        if !self.exchange.has_commands() {
            return Ok(Next::Continue);
        }
        for command in self.exchange.take_commands() {
            match command {
                Command::Add(splits) => self.add(splits)?,
                Command::UserPause(splits, is_paused) => self.pause_by_user(&splits, is_paused)?,
                Command::Remove(splits) => drop(self.take_out(&splits)?),
                Command::Pause(splits) => self.rest(&splits, true)?,
                Command::Resume(splits) => self.rest(&splits, false)?,
                Command::Stop => return Ok(Next::Stop),
            }
        }
        Ok(Next::Continue)
    }

    fn add(&mut self, splits: Vec<(ReadingId, SplitId, Position)>) -> Result<(), ReadError> {
        let names: Vec<SplitId> = splits.iter().map(|(_, split, _)| split.clone()).collect();
        let resting = self.take_out(&names)?;
        let mut started = Vec::new();
        for (id, split, position) in splits {
            let stop = self.stops.as_ref().and_then(|stops| stops.get(&split)).map(|stop| stop.next);
            if stop.is_some_and(|stop| position.next >= stop) {
                self.outbox.push_back(Handover::EndOfSplit { reading: id, split, end: position });
                continue;
            }
            let offset = i64::try_from(position.next).unwrap_or(i64::MAX);
            started.push((split.clone(), Offset::Offset(offset)));
            self.splits.insert(id, split, position.next, stop);
        }
        let list = at_offsets(started.iter().map(|(split, offset)| (split, *offset)))?;
        if list.count() == 0 {
            return Ok(());
        }
        self.client
            .consumer()
            .incremental_assign(&list)
            .map_err(|cause| ReadError::Call { doing: "assign partitions", cause })?;
        // The client forgets or keeps its own note of pauses across assignments: ours is the one that counts.
        self.rest(&resting, true)?;
        let is_paused = |split: &&SplitId| self.user_paused.contains(*split);
        let paused: Vec<_> = started.iter().map(|(split, _)| split).filter(is_paused).cloned().collect();
        self.change_rest(&paused, |reading| reading.is_paused = true)?;
        self.tell_pauses(&started);
        if matches!(self.flow, Flow::HeldBack) { self.pause_list(&list) } else { Ok(()) }
    }

    /// What an earlier reading of these splits was told, or should have been told and was not, counts for this one.
    fn tell_pauses(&mut self, started: &[(SplitId, Offset)]) {
        let is_held_back = matches!(self.flow, Flow::HeldBack);
        let was_held_back = self.status.pauses() > 0;
        for (split, _) in started {
            let Some(reading) = self.splits.get_mut(split) else { continue };
            if was_held_back {
                self.building.tell(reading, pause_event(Pause::BackPressure, is_held_back));
            }
            if self.has_user_paused {
                self.building.tell(reading, pause_event(Pause::User, reading.is_paused));
            }
        }
    }

    /// Stops reading splits; returns those of them that rest.
    ///
    /// What was collected so far is handed over first, so that a builder's split is always one reading; `poll` drops
    /// what has become stale.
    fn take_out(&mut self, splits: &[SplitId]) -> Result<Vec<SplitId>, ReadError> {
        self.close_batch()?;
        let removed: Vec<_> = splits.iter().filter_map(|split| self.splits.remove(split)).collect();
        let is_held_back = matches!(self.flow, Flow::HeldBack);
        let paused = removed
            .iter()
            .filter(|reading| reading.is_resting() || is_held_back)
            .map(|reading| &reading.split);
        self.resume_list(&partitions(paused)?)?;
        self.unassign(&partitions(removed.iter().map(|reading| &reading.split))?)?;
        Ok(removed.into_iter().filter(|reading| reading.rests).map(|reading| reading.split).collect())
    }

    fn rest(&mut self, splits: &[SplitId], rests: bool) -> Result<(), ReadError> {
        self.change_rest(splits, |reading| reading.rests = rests)
    }

    fn pause_by_user(&mut self, splits: &[SplitId], is_paused: bool) -> Result<(), ReadError> {
        for split in splits {
            match is_paused {
                true => self.user_paused.insert(split.clone()),
                false => self.user_paused.remove(split),
            };
            if let Some(reading) = self.splits.get_mut(split).filter(|reading| reading.is_paused != is_paused)
            {
                self.building.tell(reading, pause_event(Pause::User, is_paused));
            }
        }
        self.has_user_paused = true;
        self.change_rest(splits, |reading| reading.is_paused = is_paused)
    }

    /// Changes who wants splits to rest, and pauses or resumes those for which that makes a difference.
    fn change_rest(&mut self, splits: &[SplitId], change: impl Fn(&mut Reading)) -> Result<(), ReadError> {
        let (mut paused, mut resumed) = (Vec::new(), Vec::new());
        for split in splits {
            let Some(reading) = self.splits.get_mut(split) else { continue };
            let was_resting = reading.is_resting();
            change(reading);
            match (was_resting, reading.is_resting()) {
                (false, true) => paused.push(split),
                (true, false) => resumed.push(split),
                _ => {}
            }
        }
        if matches!(self.flow, Flow::HeldBack) {
            return Ok(()); // all are paused; the reading's note decides when they go on
        }
        self.pause_list(&partitions(paused)?)?;
        self.resume_list(&partitions(resumed)?)
    }

    pub(super) fn unassign(&self, list: &TopicPartitionList) -> Result<(), ReadError> {
        if list.count() == 0 {
            return Ok(());
        }
        let outcome = self.client.consumer().incremental_unassign(list);
        outcome.map_err(|cause| ReadError::Call { doing: "unassign partitions", cause })
    }

    pub(super) fn pause_list(&self, list: &TopicPartitionList) -> Result<(), ReadError> {
        if list.count() == 0 {
            return Ok(());
        }
        self.client
            .consumer()
            .pause(list)
            .map_err(|cause| ReadError::Call { doing: "pause partitions", cause })
    }

    pub(super) fn resume_list(&self, list: &TopicPartitionList) -> Result<(), ReadError> {
        if list.count() == 0 {
            return Ok(());
        }
        self.client
            .consumer()
            .resume(list)
            .map_err(|cause| ReadError::Call { doing: "resume partitions", cause })
    }
}

fn pause_event(pause: Pause, is_paused: bool) -> SplitEvent {
    if is_paused { SplitEvent::Paused(pause) } else { SplitEvent::Resumed(pause) }
}
