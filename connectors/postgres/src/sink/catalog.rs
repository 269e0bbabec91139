//! The target table as the catalog describes it, and how fields find their columns.

use hashbrown::HashMap;
use levada_core::SinkError;
use tracing::info;

use crate::quote::{Identifier, TableName};

use super::config::{ColumnOptions, PostgresSinkConfig, Tombstone, WriteMode};
use super::encode::ColumnType;
use super::error::{Failure, fatal};
use super::session::Session;
use super::sql::{self, SqlColumn};

/// One column of the target.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: Identifier,
    pub(crate) ty: ColumnType,
    pub(crate) options: ColumnOptions,
    pub(crate) is_not_null: bool,
    /// Whether the server knows a value for a row that brings none.
    pub(crate) has_default: bool,
    /// Whether the server computes it; nothing is ever written to it.
    pub(crate) is_generated: bool,
    pub(crate) is_identity_always: bool,
    pub(crate) is_key: bool,
}

/// The target of a sink.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) table: TableName,
    pub(crate) columns: Vec<Column>,
    /// The numbers of the key's columns, ascending.
    pub(crate) key: Vec<usize>,
    pub(crate) mode: WriteMode,
    pub(crate) tombstones: Tombstone,
    exact: HashMap<Box<str>, usize>,
    folded: HashMap<String, Folded>,
}

#[derive(Debug, Clone, Copy)]
enum Folded {
    One(usize),
    Many,
}

/// Where a field belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Column(usize),
    /// The table has no column for it that could be written.
    Nowhere,
    /// Several columns differ in case alone, and none is written as the field is.
    Ambiguous,
}

impl Target {
    pub(crate) fn new(
        table: TableName,
        columns: Vec<Column>,
        mode: WriteMode,
        tombstones: Tombstone,
    ) -> Self {
        let mut exact = HashMap::new();
        let mut folded = HashMap::new();
        for (number, column) in columns.iter().enumerate() {
            exact.insert(Box::from(column.name.as_str()), number);
            folded
                .entry(column.name.as_str().to_lowercase())
                .and_modify(|found| *found = Folded::Many)
                .or_insert(Folded::One(number));
        }
        let key = (0..columns.len()).filter(|number| columns[*number].is_key).collect();
        Self { table, columns, key, mode, tombstones, exact, folded }
    }

    /// Finds the column of a field: by its exact name, else by a name that differs in case alone.
    pub(crate) fn find(&self, field: &str) -> Found {
        let number = match self.exact.get(field) {
            Some(number) => *number,
            None => match self.folded.get(&field.to_lowercase()) {
                Some(Folded::One(number)) => *number,
                Some(Folded::Many) => return Found::Ambiguous,
                None => return Found::Nowhere,
            },
        };
        if self.columns[number].is_generated {
            return Found::Nowhere;
        }
        Found::Column(number)
    }

    /// Tells whether rows with these columns alone can be new rows.
    pub(crate) fn makes_whole_rows(&self, numbers: &[usize]) -> bool {
        let is_free = |column: &Column| !column.is_not_null || column.has_default;
        (0..self.columns.len())
            .all(|number| is_free(&self.columns[number]) || numbers.binary_search(&number).is_ok())
    }

    pub(crate) fn sql_columns<'a>(&'a self, numbers: &[usize]) -> Vec<SqlColumn<'a>> {
        let as_sql = |number: &usize| {
            let column = &self.columns[*number];
            SqlColumn {
                name: &column.name,
                ty: &column.ty,
                is_key: column.is_key,
                is_identity_always: column.is_identity_always,
            }
        };
        numbers.iter().map(as_sql).collect()
    }
}

/// Why the catalog could not be read, or what it says does not fit the configuration.
pub(crate) enum Unfit {
    Failed(Failure),
    Wrong(SinkError),
}

impl From<Failure> for Unfit {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<tokio_postgres::Error> for Unfit {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SinkError> for Unfit {
    fn from(error: SinkError) -> Self {
        Self::Wrong(error)
    }
}

/// Reads the target and checks the configuration against it.
pub(crate) async fn read(session: &Session, config: &PostgresSinkConfig) -> Result<Target, Unfit> {
    let client = &session.client;
    let wanted = config.table.to_string();
    let Some(row) = client.query_opt(sql::FIND_TABLE, &[&wanted]).await? else {
        let path: String =
            client.query_one("select current_setting('search_path')", &[]).await?.try_get(0)?;
        let place = match config.table.schema {
            Some(_) => String::new(),
            None => format!(" in the search path ({path})"),
        };
        return Err(fatal(format!("there is no table {wanted}{place}")).into());
    };
    let (oid, schema, name, kind): (u32, String, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    if !matches!(kind.as_str(), "r" | "p" | "v" | "f") {
        return Err(fatal(format!("{wanted} is neither a table nor a view")).into());
    }
    let table = TableName::in_schema(&schema, &name).map_err(|error| fatal(error.to_string()))?;
    info!(table = %table, "target found");

    let mut columns = Vec::new();
    for row in client.query(sql::READ_COLUMNS, &[&oid]).await? {
        let name: String = row.try_get(0)?;
        let type_name: String = row.try_get(3)?;
        columns.push(Column {
            ty: ColumnType::from_catalog(row.try_get(1)?, row.try_get(2)?, &type_name, row.try_get(4)?),
            options: config.columns.get(&name).copied().unwrap_or_default(),
            is_not_null: row.try_get(5)?,
            has_default: row.try_get(9)?,
            is_identity_always: row.try_get(6)?,
            is_generated: row.try_get(7)?,
            is_key: false,
            name: Identifier::new(name).map_err(|error| fatal(error.to_string()))?,
        });
        let is_deterministic: bool = row.try_get(8)?;
        let last = columns.len() - 1;
        let column = &columns[last];
        if !is_deterministic && config.key.iter().any(|key| key == column.name.as_str()) {
            return Err(fatal(format!(
                "column {} of {table} has a nondeterministic collation, so which keys are equal cannot be told here",
                column.name
            ))
            .into());
        }
    }
    check_options(&table, &columns, config)?;
    mark_key(&table, &mut columns, config)?;
    if config.mode == WriteMode::Upsert {
        let mut indexes = Vec::new();
        for row in client.query(sql::READ_UNIQUE_INDEXES, &[&oid]).await? {
            indexes.push((row.try_get(0)?, row.try_get(1)?));
        }
        check_unique_index(&table, &columns, &indexes)?;
    }
    Ok(Target::new(table, columns, config.mode, config.tombstones))
}

fn check_options(
    table: &TableName,
    columns: &[Column],
    config: &PostgresSinkConfig,
) -> Result<(), SinkError> {
    for (name, options) in &config.columns {
        let Some(column) = columns.iter().find(|column| column.name.as_str() == name) else {
            return Err(fatal(format!("there are options for column {name:?}, which {table} does not have")));
        };
        if options.unit.is_some() && !column.ty.takes_unit() {
            return Err(fatal(format!(
                "column {} of {table} has a unit of time, but its type is {}",
                column.name, column.ty
            )));
        }
    }
    Ok(())
}

fn mark_key(table: &TableName, columns: &mut [Column], config: &PostgresSinkConfig) -> Result<(), SinkError> {
    if config.key.is_empty() && config.mode == WriteMode::Upsert {
        return Err(fatal(format!("upsert into {table} needs key columns")));
    }
    if config.mode == WriteMode::Insert && config.tombstones == Tombstone::Delete {
        return Err(fatal(format!(
            "insert into {table} cannot delete: insert mode only adds rows; use upsert, or ignore tombstones"
        )));
    }
    for wanted in &config.key {
        let exact = columns.iter().position(|column| column.name.as_str() == wanted);
        let mut alike = (0..columns.len())
            .filter(|number| columns[*number].name.as_str().to_lowercase() == wanted.to_lowercase());
        let number = match (exact, alike.next(), alike.next()) {
            (Some(number), _, _) | (None, Some(number), None) => number,
            (None, Some(_), Some(_)) => {
                return Err(fatal(format!(
                    "key column {wanted:?} of {table} is ambiguous: several columns differ in case alone"
                )));
            }
            (None, None, _) => {
                return Err(fatal(format!("{table} has no column {wanted:?}, which is configured as key")));
            }
        };
        let column = &mut columns[number];
        if !column.ty.can_be_key() {
            return Err(fatal(format!(
                "column {} of {table} has type {}, for which equality cannot be told here; it cannot be a key",
                column.name, column.ty
            )));
        }
        if column.is_generated {
            return Err(fatal(format!("key column {} of {table} is generated by the server", column.name)));
        }
        column.is_key = true;
    }
    Ok(())
}

/// An upsert names its key columns, and the server looks for a unique index on exactly this set.
fn check_unique_index(
    table: &TableName,
    columns: &[Column],
    indexes: &[(String, Vec<String>)],
) -> Result<(), SinkError> {
    let key: Vec<&Identifier> =
        columns.iter().filter(|column| column.is_key).map(|column| &column.name).collect();
    let fits = |indexed: &[String]| {
        indexed.len() == key.len()
            && key.iter().all(|name| indexed.iter().any(|column| column == name.as_str()))
    };
    if indexes.iter().any(|(_, indexed)| fits(indexed)) {
        return Ok(());
    }
    let wanted = key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = indexes.iter().map(|(name, columns)| format!("{name} ({})", columns.join(", ")));
    let found = match indexes.is_empty() {
        true => "none".to_owned(),
        false => found.collect::<Vec<_>>().join("; "),
    };
    Err(fatal(format!(
        "upsert into {table} needs a unique index on exactly ({wanted}), without a condition and not deferrable; \
         unique indexes found: {found}; this would make one: create unique index on {table} ({wanted})"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(names: &[&str]) -> Target {
        let column = |name: &&str| Column {
            name: Identifier::new(*name).expect("a name"),
            ty: ColumnType::Text,
            options: ColumnOptions::default(),
            is_not_null: false,
            has_default: false,
            is_generated: *name == "generated",
            is_identity_always: false,
            is_key: false,
        };
        let table = TableName::new("t").expect("a name");
        Target::new(table, names.iter().map(column).collect(), WriteMode::Insert, Tombstone::Ignore)
    }

    /// [PGS-30] exact first, then unique ignoring case, never a guess.
    #[test]
    fn field_finds_its_column() {
        let target = target(&["id", "Name", "NAME", "Größe", "a.b", "generated"]);
        assert_eq!(target.find("id"), Found::Column(0));
        assert_eq!(target.find("ID"), Found::Column(0));
        assert_eq!(target.find("NAME"), Found::Column(2));
        assert_eq!(target.find("name"), Found::Ambiguous);
        assert_eq!(target.find("GRÖSSE"), Found::Nowhere);
        assert_eq!(target.find("größe"), Found::Column(3));
        assert_eq!(target.find("a.b"), Found::Column(4));
        assert_eq!(target.find("a"), Found::Nowhere);
        assert_eq!(target.find("generated"), Found::Nowhere);
    }
}
