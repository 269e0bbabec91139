//! From a step of the pipeline file to an open lookup.

use levada_core::ErrorClass;
use levada_core::async_io::CallError;
use levada_postgres::lookup::{CacheBound, CacheConfig, Matches, PostgresLookup, PostgresLookupConfig};
use levada_postgres::quote::{IdentifierError, TableName};
use thiserror::Error;

use crate::config::{CachePart, EnrichPart, Found, Rows};

/// A step that cannot be set up. Nothing was started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LookupConfigError {
    /// The connection string is none. It is not repeated: it may hold a password.
    #[error("postgres.url is no connection string")]
    Url,
    /// A name cannot be one.
    #[error("postgres.table")]
    Table(#[from] IdentifierError),
    /// The query names a parameter that has no field, or the other way round.
    #[error("postgres.parameters: {name:?} {problem}")]
    Parameter {
        /// The parameter.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Makes the settings of a step's lookup, and the fields that its key is made of.
///
/// # Errors
/// What in the settings cannot work. What depends on the server fails when the pipeline connects.
pub fn lookup_config(
    part: &EnrichPart,
    pipeline: &str,
) -> Result<(PostgresLookupConfig, Vec<String>), LookupConfigError> {
    let connection = part.url.parse().map_err(|_| LookupConfigError::Url)?;
    let (config, given) = match &part.found {
        Found::Table { schema, table, key } => {
            let table = match schema {
                Some(schema) => TableName::in_schema(schema, table)?,
                None => TableName::new(table)?,
            };
            let columns = key.iter().map(|(column, _)| column.as_str());
            (PostgresLookupConfig::by_table(connection, table, columns).columns(wanted(part)), key)
        }
        Found::Query { text, parameters } => (PostgresLookupConfig::by_query(connection, text), parameters),
    };
    let mut config = config
        .matches(match part.rows {
            Rows::First => Matches::First,
            Rows::One => Matches::ExactlyOne,
        })
        .timeout(part.timeout);
    config.keys_per_query = part.batch;
    config.application_name = format!("levada/{pipeline}/{}", part.name);
    config.cache = part.cache.map(cache);
    config.preload = part.preload;
    config.invalidation_channel.clone_from(&part.invalidated_by);
    let fields = fields(&config.key_names(), given)?;
    Ok((config, fields))
}

/// Returns the columns that are asked for, each once.
fn wanted(part: &EnrichPart) -> Vec<&str> {
    let mut columns: Vec<&str> = part.fields.iter().map(|(_, column)| column.as_str()).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Puts the fields into the order in which the lookup takes them.
fn fields(named: &[String], given: &[(String, String)]) -> Result<Vec<String>, LookupConfigError> {
    let wrong = |name: &String, problem| LookupConfigError::Parameter { name: name.clone(), problem };
    if let Some((name, _)) = given.iter().find(|(name, _)| !named.contains(name)) {
        return Err(wrong(name, "does not stand in the query"));
    }
    let field = |name: &String| {
        let field = given.iter().find(|(parameter, _)| parameter == name).map(|(_, field)| field.clone());
        field.ok_or_else(|| wrong(name, "stands in the query, and no field gives its value"))
    };
    named.iter().map(field).collect()
}

fn cache(part: CachePart) -> CacheConfig {
    let mut cache = CacheConfig::new(CacheBound::Rows(part.rows));
    cache.after_write = part.after_write;
    cache.after_access = part.after_access;
    cache.missing = part.missing;
    cache
}

/// Connects, looks whether every field has its column, and says what the start has found to be slow.
pub(super) async fn open(
    name: &str,
    config: PostgresLookupConfig,
    fields: &[(String, String)],
) -> Result<PostgresLookup, CallError> {
    let lookup = PostgresLookup::open(config).await.map_err(|error| {
        CallError::new(error.class(), format!("lookup {name:?} cannot be opened")).caused_by(error)
    })?;
    if let Some((_, column)) = fields.iter().find(|(_, column)| lookup.columns().position(column).is_none()) {
        let names: Vec<&str> = lookup.columns().names().iter().map(|name| &**name).collect();
        let message = format!("lookup {name:?} gives no column {column:?}; it gives {}", names.join(", "));
        return Err(CallError::new(ErrorClass::Fatal, message));
    }
    for warning in lookup.warnings() {
        tracing::warn!(lookup = name, "{warning}");
    }
    Ok(lookup)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [LKP-01] parameters and fields that do not fit together are told before anything is started.
    #[test]
    fn parameters_and_fields_must_fit() {
        let named = ["a".to_owned(), "b".to_owned()];
        let given =
            |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), format!("f_{n}"))).collect::<Vec<_>>();
        assert_eq!(fields(&named, &given(&["b", "a"])).expect("fields"), ["f_a", "f_b"]);
        let told = |names: &[&str]| fields(&named, &given(names)).expect_err("refused").to_string();
        assert!(told(&["a"]).contains("\"b\" stands in the query"));
        assert!(told(&["a", "b", "c"]).contains("\"c\" does not stand"));
    }
}
