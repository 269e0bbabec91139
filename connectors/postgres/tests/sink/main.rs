//! The sink on a real Postgres; rows are read back by `psql`.

mod changes;
mod scene;
