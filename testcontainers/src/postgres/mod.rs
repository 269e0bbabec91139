//! PostgreSQL, as a process of this machine or in a container.

mod builder;
#[cfg(feature = "docker")]
mod contained;
mod database;
mod faults;
mod handle;
mod initialise;
mod psql;
mod secured;
mod settings;
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
pub(crate) use psql::quoted;
pub(crate) use user::server_user;
