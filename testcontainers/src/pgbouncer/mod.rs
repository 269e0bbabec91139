//! PgBouncer, the connection pooler, as a local process in front of a Postgres server.

mod builder;
mod faults;
mod handle;
mod settings;
mod start;

pub use builder::{PgBouncerBuilder, PoolMode};
pub use handle::PgBouncer;
