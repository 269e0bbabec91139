//! Drives a source as the engine does, and keeps what came.

use std::collections::BTreeMap;

use levada_core::{
    Assignment, BatchBuilder, Budget, Polled, Position, Positions, Source, SourceContext, SourceError,
    SplitId,
};
use levada_files::{BatchBounds, LineSource, LineSourceConfig};

/// Records by split: offset and line.
pub(crate) type Read = BTreeMap<SplitId, Vec<(u64, String)>>;

pub(crate) struct Reader {
    pub(crate) source: LineSource,
    pub(crate) assignment: Assignment,
    pub(crate) read: Read,
    pub(crate) positions: Positions,
    pub(crate) ended: Vec<(SplitId, Position)>,
}

pub(crate) fn context(subtask: u32, parallelism: u32) -> SourceContext {
    SourceContext { subtask, parallelism, budget: Budget::new(1 << 20) }
}

pub(crate) fn bounds(records: usize, bytes: usize) -> BatchBounds {
    BatchBounds { records, bytes }
}

impl Reader {
    /// Opens a source and adds its splits: at these positions, else at their starts.
    pub(crate) async fn at(config: LineSourceConfig, positions: &Positions) -> Result<Self, SourceError> {
        Self::with(config, context(0, 1), positions).await
    }

    pub(crate) async fn with(
        config: LineSourceConfig,
        ctx: SourceContext,
        positions: &Positions,
    ) -> Result<Self, SourceError> {
        let mut source = LineSource::new(config);
        source.open(ctx).await?;
        let mut reader = Self {
            source,
            assignment: Assignment::default(),
            read: Read::new(),
            positions: positions.clone(),
            ended: Vec::new(),
        };
        let mut out = BatchBuilder::new();
        match reader.source.poll(&mut out).await? {
            Polled::Assigned(assignment) => reader.assignment = assignment,
            polled => assert_eq!(polled, Polled::End, "a subtask without files"),
        }
        let start_of = |split: &SplitId| (split.clone(), positions.get(split).cloned().unwrap_or_default());
        reader.source.add(reader.assignment.splits.iter().map(start_of).collect())?;
        Ok(reader)
    }

    /// Polls once and takes over what came.
    pub(crate) async fn poll(&mut self) -> Result<Polled, SourceError> {
        let mut out = BatchBuilder::new();
        let polled = self.source.poll(&mut out).await?;
        self.take(&mut out);
        if let Polled::EndOfSplit(split, end) = &polled {
            assert_eq!(self.positions.get(split), Some(end), "its last position was appended");
            self.ended.push((split.clone(), end.clone()));
        }
        Ok(polled)
    }

    pub(crate) fn take(&mut self, out: &mut BatchBuilder) {
        let (batch, moved) = out.finish();
        for record in batch.records() {
            let line = batch.value(&record.origin).expect("a line");
            let line = (record.origin.offset, String::from_utf8_lossy(line).into_owned());
            self.read.entry(batch.split(&record.origin).clone()).or_default().push(line);
        }
        self.positions.merge(moved);
    }

    pub(crate) async fn read_all(&mut self) -> Result<(), SourceError> {
        while self.poll().await? != Polled::End {}
        Ok(())
    }

    /// Returns the lines of all splits, in the order of the splits.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.read.values().flatten().map(|(_, line)| line.as_str()).collect()
    }
}
