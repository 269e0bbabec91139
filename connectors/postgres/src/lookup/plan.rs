//! What a lookup sends and what comes back, once the configuration has met the catalog.

use std::sync::Arc;

use levada_core::{Row, Shape};
use tokio_postgres::Row as Answer;
use tokio_postgres::types::{Kind, Type};

use crate::quote::{Identifier, TableName};
use crate::sink::encode::ColumnType;
use crate::sink::error::Failure;
use crate::sink::session::{Session, answered};
use crate::sink::sql::{FIND_TABLE, READ_COLUMNS};

use super::cache::Rows;
use super::config::{Matches, PostgresLookupConfig, Target};
use super::decode::{self, Raw};
use super::error::LookupError;
use super::named::NamedQuery;
use super::sql::{self, Limit};

/// One part of the key.
#[derive(Debug, Clone)]
pub(crate) struct KeyPart {
    pub(crate) name: Arc<str>,
    pub(crate) ty: ColumnType,
    /// Whether the server is known to take two values for equal exactly when their canonical bytes are.
    pub(crate) is_canonical: bool,
}

/// Everything that is decided before the first lookup.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What is looked up, for messages.
    pub(crate) target: Arc<str>,
    pub(crate) parameters: Vec<KeyPart>,
    pub(crate) shape: Arc<Shape>,
    /// Looks one key up.
    pub(crate) one: String,
    /// Looks many keys up.
    pub(crate) many: String,
    /// Reads the whole table, where it is one.
    pub(crate) whole: Option<String>,
    pub(crate) matches: Matches,
    /// The type of the last part of the key where it is a time.
    pub(crate) version: Option<ColumnType>,
}

impl Plan {
    /// Reads types from the server and writes the statements.
    pub(crate) async fn resolve(
        session: &Session,
        config: &PostgresLookupConfig,
    ) -> Result<Self, LookupError> {
        match &config.target {
            Target::Table { .. } => by_table(session, config).await,
            Target::Query { sql } => by_query(session, config, sql).await,
        }
    }

    /// Tells whether a key is known by its bytes alone.
    pub(crate) fn is_canonical(&self) -> bool {
        self.parameters.iter().all(|part| part.is_canonical)
    }

    /// Tells whether so many rows are an answer.
    pub(crate) fn judge(&self, rows: Rows) -> Result<Rows, LookupError> {
        let target = || Arc::clone(&self.target);
        match (self.matches, rows.len()) {
            (Matches::ExactlyOne, 0) => Err(LookupError::NoMatch { target: target() }),
            (Matches::ExactlyOne, 2..) => Err(LookupError::Ambiguous { target: target() }),
            _ => Ok(rows),
        }
    }

    /// Returns how many rows of a key are of use.
    pub(crate) fn most_rows(&self) -> usize {
        match rows(self.matches) {
            Limit::Up(limit) => limit as usize,
            Limit::All => usize::MAX,
        }
    }

    /// Makes a row of an answer's columns from `first` on.
    pub(crate) fn row(&self, answer: &Answer, first: usize) -> Result<Row, LookupError> {
        let mut values = Vec::with_capacity(self.shape.len());
        for (number, column) in answer.columns().iter().enumerate().skip(first) {
            // Any type's bytes are taken as they are.
            let raw =
                answer.try_get::<_, Option<Raw<'_>>>(number).map_err(|_| self.undecodable(number - first))?;
            let value = decode::value(column.type_().oid(), raw.map(|raw| raw.0));
            values.push(value.map_err(|_| self.undecodable(number - first))?);
        }
        if values.len() != self.shape.len() {
            return Err(self.undecodable(values.len()));
        }
        Ok(Row::new(Arc::clone(&self.shape), values))
    }

    fn undecodable(&self, number: usize) -> LookupError {
        let column = self.shape.names().get(number).map_or("?", |name| name);
        LookupError::Undecodable { target: Arc::clone(&self.target), column: column.into() }
    }
}

fn rows(matches: Matches) -> Limit {
    match matches {
        Matches::First => Limit::Up(1),
        // The second one tells that there is more than one.
        Matches::ExactlyOne => Limit::Up(2),
        Matches::All => Limit::All,
    }
}

struct Column {
    name: Identifier,
    oid: u32,
    type_name: String,
    is_enum: bool,
    is_deterministic: bool,
}

impl Column {
    /// Returns its type without limits: a key that is too long for its column matches nothing, and is no error.
    fn key_type(&self) -> ColumnType {
        ColumnType::from_catalog(self.oid, -1, &self.type_name, self.is_enum)
    }

    fn key_part(&self) -> KeyPart {
        let ty = self.key_type();
        let is_canonical = ty.can_be_key() && self.is_deterministic;
        KeyPart { name: self.name.as_str().into(), ty, is_canonical }
    }
}

async fn by_table(session: &Session, config: &PostgresLookupConfig) -> Result<Plan, LookupError> {
    let Target::Table { table, key, columns, order, version } = &config.target else {
        return Err(LookupError::Config("no table".to_owned()));
    };
    let (table, all) = read_table(session, table).await?;
    let find = |name: &String| {
        let found = all.iter().find(|column| column.name.as_str() == name);
        found.ok_or_else(|| {
            let known = all.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            LookupError::Unfit(format!("{table} has no column {name:?}; it has: {known}"))
        })
    };
    let key = key.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let wanted = match columns.is_empty() {
        true => all.iter().collect(),
        false => columns.iter().map(find).collect::<Result<Vec<_>, _>>()?,
    };
    let sort = |(name, is_descending): &(String, bool)| Ok((find(name)?.name.clone(), *is_descending));
    let order = order.iter().map(sort).collect::<Result<Vec<_>, LookupError>>()?;
    let version = version.as_ref().map(find).transpose()?;
    let name_of = |column: &&Column| column.name.clone();
    let text = sql::by_table(
        &table,
        &wanted.iter().map(name_of).collect::<Vec<_>>(),
        &key.iter().map(name_of).collect::<Vec<_>>(),
        &order,
        version.map(|column| &column.name),
    );
    let mut parameters: Vec<KeyPart> = key.iter().map(|column| column.key_part()).collect();
    if let Some(version) = version {
        parameters.push(version_part(&table, version)?);
    }
    let as_text: Vec<bool> = wanted.iter().map(|column| !decode::reads(column.oid)).collect();
    let whole = config.preload.is_some().then(|| {
        let key: Vec<_> = key.iter().map(|column| (column.name.clone(), column.key_type())).collect();
        let wanted: Vec<_> = wanted.iter().map(name_of).zip(as_text.iter().copied()).collect();
        sql::whole(&table, &key, &wanted, &order)
    });
    let plan = Plan {
        target: table.to_string().into(),
        shape: Shape::new(wanted.iter().map(|column| column.name.as_str())),
        whole,
        version: version.map(Column::key_type),
        ..finish(config.matches, &text, parameters, &as_text)
    };
    if plan.whole.is_some() && !plan.is_canonical() {
        return Err(LookupError::Unfit(format!(
            "{table} cannot be kept as a whole: which keys are equal is told by the server alone, for their type or \
             collation"
        )));
    }
    Ok(plan)
}

fn finish(matches: Matches, text: &str, parameters: Vec<KeyPart>, as_text: &[bool]) -> Plan {
    let query = NamedQuery::parse(text);
    let kinds: Vec<ColumnType> = parameters.iter().map(|part| part.ty.clone()).collect();
    Plan {
        target: "the query".into(),
        shape: Shape::new(Vec::<&str>::new()),
        one: sql::one(&query, &kinds, as_text, rows(matches)),
        many: sql::many(&query, &kinds, as_text, rows(matches)),
        whole: None,
        parameters,
        matches,
        version: None,
    }
}

fn version_part(table: &TableName, column: &Column) -> Result<KeyPart, LookupError> {
    let part = column.key_part();
    match part.ty {
        ColumnType::Timestamp(_) | ColumnType::Timestamptz(_) | ColumnType::Int8 => Ok(part),
        other => Err(LookupError::Unfit(format!(
            "column {} of {table} cannot be a version: it is {other}, and not timestamptz, timestamp or int8",
            column.name
        ))),
    }
}

async fn read_table(session: &Session, table: &TableName) -> Result<(TableName, Vec<Column>), LookupError> {
    let (client, patience, wanted) = (&session.client, session.patience, table.to_string());
    let unanswered = |failure: Failure| LookupError::server(&wanted.as_str().into(), failure);
    let failed = |error: tokio_postgres::Error| unanswered(error.into());
    let found = answered(patience, client.query_opt(FIND_TABLE, &[&wanted])).await.map_err(unanswered)?;
    let Some(found) = found else {
        return Err(LookupError::Unfit(format!("there is no table {wanted}")));
    };
    let oid: u32 = found.try_get(0).map_err(failed)?;
    let (schema, name): (String, String) =
        (found.try_get(1).map_err(failed)?, found.try_get(2).map_err(failed)?);
    let table = TableName::in_schema(&schema, &name)?;
    let mut columns = Vec::new();
    for row in answered(patience, client.query(READ_COLUMNS, &[&oid])).await.map_err(unanswered)? {
        let name: String = row.try_get(0).map_err(failed)?;
        columns.push(Column {
            name: Identifier::new(name)?,
            oid: row.try_get(1).map_err(failed)?,
            type_name: row.try_get(3).map_err(failed)?,
            is_enum: row.try_get(4).map_err(failed)?,
            is_deterministic: row.try_get(8).map_err(failed)?,
        });
    }
    Ok((table, columns))
}

async fn by_query(session: &Session, config: &PostgresLookupConfig, text: &str) -> Result<Plan, LookupError> {
    let query = NamedQuery::parse(text);
    if query.names.is_empty() {
        return Err(LookupError::Config("the query names no parameter, so it has no key".to_owned()));
    }
    let (client, patience) = (&session.client, session.patience);
    let target: Arc<str> = "the query".into();
    let failed = |failure| LookupError::server(&target, failure);
    let learnt = answered(patience, client.prepare(&sql::to_learn(&query))).await.map_err(failed)?;
    if learnt.columns().is_empty() || learnt.params().len() != query.names.len() {
        return Err(LookupError::Config(
            "the query must give columns, and have parameters by name alone".to_owned(),
        ));
    }
    let mut parameters = Vec::new();
    for (name, ty) in query.names.iter().zip(learnt.params()) {
        let base = base_of(ty);
        let oid = base.oid();
        let row = answered(patience, client.query_one(sql::NAME_TYPE, &[&oid])).await.map_err(failed)?;
        let type_name: String = row.try_get(0).map_err(|error| failed(error.into()))?;
        let is_enum = matches!(base.kind(), Kind::Enum(_));
        let ty = ColumnType::from_catalog(oid, -1, &type_name, is_enum);
        // By what the query compares it, and what it makes of it before, only the query knows.
        parameters.push(KeyPart { name: name.as_str().into(), is_canonical: false, ty });
    }
    let as_text: Vec<bool> =
        learnt.columns().iter().map(|column| !decode::reads(base_of(column.type_()).oid())).collect();
    let shape = Shape::new(learnt.columns().iter().map(|column| column.name()));
    Ok(Plan { target, shape, ..finish(config.matches, text, parameters, &as_text) })
}

/// Returns what a domain is made of.
fn base_of(ty: &Type) -> &Type {
    let mut base = ty;
    while let Kind::Domain(inner) = base.kind() {
        base = inner;
    }
    base
}
