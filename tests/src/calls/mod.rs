//! A job with checkpoints that calls another system: the program that a crash loop kills, and the judge of its answers.
//!
//! ```text
//!  numbers on twelve ways ─▶ a call for each, many in flight ─▶ HOME/out      judged by `answers`
//!        life of the program                                    HOME/store    checkpoints
//!                                                               HOME/ends     where the last life ends
//! ```
//!
//! The source needs no other system, so a life takes some milliseconds to begin, and calls are in flight whenever it ends. What
//! the answer to a number is, everybody can compute; so a judge needs no second source of truth: of each way every number up
//! to its end must be there once, with its own answer.

mod answers;
mod job;
mod scene;
mod service;
mod told;
mod ways;

pub use answers::Answers;
pub use job::job;
pub use scene::{Scene, called_again};
pub use told::Told;

/// What a judge finds: nothing, or what is wrong.
pub type Verdict = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Returns what is to be answered to a number: the number that was asked for shows in nothing of it.
fn answer_to(number: u64) -> u64 {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread ^ (spread >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
