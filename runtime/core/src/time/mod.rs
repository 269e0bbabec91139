//! Time: what watermarks promise, when a split is idle, and who waits for whom.
//!
//! A *watermark* w says: no more records with a timestamp ≤ w. Everything here is a value: nothing reads a clock, whoever
//! calls brings the time along. A clock that is set back only makes waiting longer.
//!
//! How partitions make one watermark while one of them is idle and one is blocked:
//!
//! ```text
//!              read so far                          its watermark (bound 10)   status       counts
//!
//! flights-0  … 1300 1337 1330 ──▶ more comes        1337 − 10 − 1 = 1326       Active        1326 ─┐
//! flights-1  … 980 990 ┤ end, for more than 60 s;    990 − 10 − 1 =  979       Idle             –  ├──▶ 1189
//!                        the leader: nothing more                                                  │
//! flights-2  … 1200 ┤ end, for more than 60 s;      1200 − 10 − 1 = 1189       Blocked       1189 ─┘
//!                     the leader: 5 more (in an open transaction)
//! ```
//!
//! The idle one is left out. The blocked one is waited for: its five records will come, and must not be late. Were
//! `flights-2` idle too, 1326 would come out. Had 1326 come out before, nothing would now, until the minimum is higher.
//!
//! Where it happens:
//!
//! ```text
//!  record ──▶ TimestampAssigner ──▶ record is emitted ──▶ WatermarkGenerator ─┐   one for each split
//!  end of partition, answer of the leader, pause … ─────▶ SplitState ─────────┴▶ SplitMerge ──▶ channels ──▶ ChannelMerge
//!                                                                                  │   ▲                     in every task
//!                                                                    report        ▼   │ pause, resume       downstream
//!                                                                                DriftGroup
//! ```
//!
//! * [`WatermarkStrategy`]: how a source tells time; a value that makes the parts.
//! * [`WatermarkGenerator`] and [`TimestampAssigner`]: from records to watermarks.
//! * [`SplitState`]: Active, CaughtUp, Idle or Blocked; idle only on proof.
//! * [`SplitMerge`] in a source and [`ChannelMerge`] behind it: from many watermarks to one.
//! * [`DriftGroup`] and [`SplitDrift`]: nobody runs ahead of the others by more than a limit.
//! * [`SourceTime`]: all of it for one subtask.

mod channel_merge;
mod drift_group;
mod generator;
mod question;
mod ranked;
mod signal;
mod source_batch;
mod source_time;
mod split_drift;
mod split_merge;
mod split_state;
mod status;
mod stopwatch;
mod strategy;
mod timestamps;

pub use channel_merge::ChannelMerge;
pub use drift_group::{DriftGroup, DriftReport};
pub use generator::{BoundedOutOfOrderness, BoxGenerator, NoWatermarks, Punctuated, WatermarkGenerator};
pub use question::Question;
pub use signal::TimeSignal;
pub use source_time::{SourceTime, TimeAction};
pub use split_drift::{DriftStep, SplitDrift};
pub use split_merge::SplitMerge;
pub use split_state::{Reaction, SplitEvent, SplitState};
pub use status::{Blocked, OpenTransaction, Pause, Pauses, SplitStatus};
pub use strategy::{DriftLimit, IdleTimeout, StrategyError, WatermarkStrategy};
pub use timestamps::{
    MissingTimestamp, MissingTimestamps, TimestampAssigner, TimestampFrom, WithoutTimestamp,
};
