//! The sink on a real Postgres; rows are read back by `psql`.

mod changes;
mod claims;
mod contention;
mod names;
mod outages;
mod scene;
mod values;
