//! PostgreSQL as a local process.

mod builder;
#[cfg(feature = "docker")]
mod contained;
mod database;
mod faults;
mod handle;
mod initialise;
mod psql;
mod secured;
mod shared;
mod shared_memory;
mod standby;
mod start;
mod user;

pub use builder::PostgresBuilder;
pub use database::Database;
pub use handle::Postgres;
pub use shared::SharedPostgres;

pub(crate) use handle::{PASSWORD, USER};
pub(crate) use user::server_user;
