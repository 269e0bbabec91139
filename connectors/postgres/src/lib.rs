//! A Postgres upsert sink whose rows and source positions share one transaction.
#![forbid(unsafe_code)]
