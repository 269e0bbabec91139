//! The statements' texts, as functions of names and types.
//!
//! There is one text per kind and column set, however many rows there are: each column is one array parameter.

use std::time::Duration;

use crate::quote::{Identifier, TableName};

use super::encode::ColumnType;

/// The version of the positions table that this code reads and writes.
pub(crate) const POSITIONS_VERSION: i32 = 1;

/// Where the tables of our own are.
pub(crate) const SCHEMA: &str = "create schema if not exists levada;\n";
/// What the sink needs in it besides the target.
pub(crate) const POSITIONS_TABLES: &str = "\
create table if not exists levada.meta (version int not null);
insert into levada.meta select 1 where not exists (select from levada.meta);
create table if not exists levada.positions (
    pipeline   text        not null,
    stream     text        not null,
    split      int         not null,
    next       bigint      not null,
    detail     bytea       not null default '',
    stream_id  text        not null,
    epoch      bigint      not null default 0,
    owner      text        not null default '',
    owner_pid  int,
    run        bigint      not null default 0,
    updated_at timestamptz not null default now(),
    primary key (pipeline, stream, split)
);
";

/// The advisory lock under which the positions table is created: any number, but always the same.
pub(crate) const DDL_LOCK: i64 = 0x6c65_7661_6461_0001;

pub(crate) const BEGIN: &str = "begin isolation level read committed";

/// Begins a transaction that waits for locks as long as `patience`.
pub(crate) fn begin_waiting(patience: Duration) -> String {
    format!("{BEGIN}; set local lock_timeout = {}; set local statement_timeout = 0", patience.as_millis())
}

/// Sets a session's limits: for a statement, for waiting for a lock, and for a transaction that waits for us.
pub(crate) fn set_limits(statement: Duration, lock: Duration, idle_in_transaction: Duration) -> String {
    format!(
        "set statement_timeout = {}; set lock_timeout = {}; set idle_in_transaction_session_timeout = {}",
        statement.as_millis(),
        lock.as_millis(),
        idle_in_transaction.as_millis(),
    )
}

pub(crate) const COMMIT: &str = "commit";
pub(crate) const ROLLBACK: &str = "rollback";
/// Makes deferred constraints speak up before a rollback silences them.
pub(crate) const CHECK_DEFERRED: &str = "set constraints all immediate";

/// One column of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SqlColumn<'a> {
    pub(crate) name: &'a Identifier,
    pub(crate) ty: &'a ColumnType,
    pub(crate) is_key: bool,
    /// Whether only an override lets a value in: `generated always as identity`.
    pub(crate) is_identity_always: bool,
}

/// `unnest($1::int4[], …) as u(c1, …)`, parameters counted from one.
fn rows_from(columns: &[SqlColumn<'_>], extra: &str) -> String {
    let mut text = String::from("unnest(");
    for (number, column) in columns.iter().enumerate() {
        let separator = if number > 0 { ", " } else { "" };
        text.push_str(&format!("{separator}${}::{}[]", number + 1, column.ty.wire_name()));
    }
    text.push_str(&format!("){extra} as u("));
    for number in 0..columns.len() {
        let separator = if number > 0 { ", " } else { "" };
        text.push_str(&format!("{separator}c{}", number + 1));
    }
    if !extra.is_empty() {
        text.push_str(", place");
    }
    text.push(')');
    text
}

fn value(number: usize, ty: &ColumnType) -> String {
    match ty.cast() {
        Some(cast) => format!("u.c{}::{cast}", number + 1),
        None => format!("u.c{}", number + 1),
    }
}

fn list<T>(items: impl IntoIterator<Item = T>, separator: &str, print: impl Fn(T) -> String) -> String {
    let mut text = String::new();
    for item in items {
        if !text.is_empty() {
            text.push_str(separator);
        }
        text.push_str(&print(item));
    }
    text
}

/// Inserts rows that have exactly these columns.
pub(crate) fn insert(table: &TableName, columns: &[SqlColumn<'_>]) -> String {
    let names = list(columns, ", ", |column| column.name.to_string());
    let values = list(columns.iter().enumerate(), ", ", |(number, column)| value(number, column.ty));
    let overriding = overriding(columns);
    format!("insert into {table} as t ({names}){overriding} select {values} from {}", rows_from(columns, ""))
}

/// Lets values into a column that the server would number by itself.
fn overriding(columns: &[SqlColumn<'_>]) -> &'static str {
    match columns.iter().any(|column| column.is_identity_always) {
        true => " overriding system value",
        false => "",
    }
}

/// Inserts rows that have exactly these columns, or sets the columns in the row of the same key.
pub(crate) fn upsert(table: &TableName, columns: &[SqlColumn<'_>]) -> String {
    let key = list(columns.iter().filter(|column| column.is_key), ", ", |column| column.name.to_string());
    let settable = columns.iter().filter(|column| !column.is_key && !column.is_identity_always);
    let set = list(settable, ", ", |column| format!("{0} = excluded.{0}", column.name));
    let insert = insert(table, columns);
    match set.is_empty() {
        true => format!("{insert} on conflict ({key}) do nothing"),
        false => format!("{insert} on conflict ({key}) do update set {set}"),
    }
}

/// As [`upsert`], for rows that leave out a column which a new row must have.
///
/// The server checks `not null` before it looks for a conflict, so an insert would fail for rows that are there. Those
/// are updated first, and only the others are inserted.
pub(crate) fn update_or_insert(table: &TableName, columns: &[SqlColumn<'_>]) -> String {
    let numbered = || columns.iter().enumerate();
    let rows =
        list(numbered(), ", ", |(number, column)| format!("{} as c{}", value(number, column.ty), number + 1));
    let on_key = |left: &str, right: &str| {
        list(numbered().filter(|(_, column)| column.is_key), " and ", |(number, column)| {
            let name = if left == "t" { column.name.to_string() } else { format!("c{}", number + 1) };
            format!("{left}.{name} = {right}.c{}", number + 1)
        })
    };
    let settable = numbered().filter(|(_, column)| !column.is_key && !column.is_identity_always);
    let set = list(settable, ", ", |(number, column)| format!("{} = r.c{}", column.name, number + 1));
    let key = list(numbered().filter(|(_, column)| column.is_key), ", ", |(number, _)| {
        format!("r.c{}", number + 1)
    });
    let there = match set.is_empty() {
        true => format!("select {key} from {table} as t join r on {}", on_key("t", "r")),
        false => format!("update {table} as t set {set} from r where {} returning {key}", on_key("t", "r")),
    };
    let names = list(columns, ", ", |column| column.name.to_string());
    let overriding = overriding(columns);
    let values = list(numbered(), ", ", |(number, _)| format!("r.c{}", number + 1));
    format!(
        "with r as materialized (select {rows} from {}), done as ({there}) \
         insert into {table} ({names}){overriding} select {values} from r where not exists (select from done where {})",
        rows_from(columns, ""),
        on_key("done", "r"),
    )
}

fn same_key(key: &[SqlColumn<'_>]) -> String {
    list(key.iter().enumerate(), " and ", |(number, column)| {
        format!("t.{} = {}", column.name, value(number, column.ty))
    })
}

/// Locks rows that are about to be deleted, in the order of the parameters, which is key order.
pub(crate) fn lock_rows(table: &TableName, key: &[SqlColumn<'_>]) -> String {
    format!(
        "select count(*) from (select from {table} as t join {} on {} order by u.place for update of t) as locked",
        rows_from(key, " with ordinality"),
        same_key(key),
    )
}

/// Deletes rows by key.
pub(crate) fn delete(table: &TableName, key: &[SqlColumn<'_>]) -> String {
    format!("delete from {table} as t using {} where {}", rows_from(key, ""), same_key(key))
}

/// Moves positions, or fails *in the server* unless every one is where this owner left it and still his.
///
/// Parameters: pipeline, streams, splits, epochs, old positions, new positions, new details, number of splits. The
/// rows are locked in key order before the first one is changed. The failing division is by a number that is known
/// only once the update is done, so no planner can evaluate it earlier.
pub(crate) const MOVE_POSITIONS: &str = "\
with wanted as (
    select * from unnest($2::text[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::bytea[])
        as w(stream, split, epoch, old_next, new_next, new_detail)
), held as (
    select p.stream, p.split from levada.positions as p
    join wanted as w on p.stream = w.stream and p.split = w.split
    where p.pipeline = $1
    order by p.stream collate \"C\", p.split
    for update of p
), moved as (
    update levada.positions as p set next = w.new_next, detail = w.new_detail, updated_at = now()
    from wanted as w join held as h on h.stream = w.stream and h.split = w.split
    where p.pipeline = $1 and p.stream = w.stream and p.split = w.split
        and p.epoch = w.epoch and p.next = w.old_next
    returning 1
)
select 1 / (count(*) = $8::int8)::int from moved";

/// The same without the comparison: for tests that show what it is there for.
#[cfg(feature = "failpoints")]
pub(crate) const MOVE_POSITIONS_BLINDLY: &str = "\
with wanted as (
    select * from unnest($2::text[], $3::int4[], $4::int8[], $5::int8[], $6::int8[], $7::bytea[])
        as w(stream, split, epoch, old_next, new_next, new_detail)
), moved as (
    update levada.positions as p set next = w.new_next, detail = w.new_detail, updated_at = now()
    from wanted as w
    where p.pipeline = $1 and p.stream = w.stream and p.split = w.split
    returning 1
)
select count(*) from moved where $8::int8 is not null";

/// Reads positions. Parameters: pipeline, streams, splits.
pub(crate) const READ_POSITIONS: &str = "\
select p.stream, p.split, p.next, p.detail, p.stream_id, p.epoch, p.owner, p.owner_pid, p.updated_at::text, p.run
from levada.positions as p join unnest($2::text[], $3::int4[]) as w(stream, split)
    on p.stream = w.stream and p.split = w.split
where p.pipeline = $1
order by p.stream collate \"C\", p.split";

/// Reads positions and locks their rows, in key order. Parameters as in [`READ_POSITIONS`].
pub(crate) const LOCK_POSITIONS: &str = "\
select p.stream, p.split, p.next, p.detail, p.stream_id, p.epoch, p.owner, p.owner_pid, p.updated_at::text, p.run
from levada.positions as p join unnest($2::text[], $3::int4[]) as w(stream, split)
    on p.stream = w.stream and p.split = w.split
where p.pipeline = $1
order by p.stream collate \"C\", p.split
for update of p";

/// Draws the number of a run: higher than that of any run that has claimed. Parameter: pipeline.
pub(crate) const NEXT_RUN: &str =
    "select coalesce(max(run), 0) + 1 from levada.positions where pipeline = $1";

/// Makes locked rows this owner's. Parameters: pipeline, streams, splits, owner, number of the run.
pub(crate) const TAKE_POSITIONS: &str = "\
update levada.positions as p
set epoch = p.epoch + 1, owner = $4, owner_pid = pg_backend_pid(), run = greatest(p.run, $5), updated_at = now()
from unnest($2::text[], $3::int4[]) as w(stream, split)
where p.pipeline = $1 and p.stream = w.stream and p.split = w.split";

/// Lists the splits of streams that have a row. Parameters: pipeline, streams.
pub(crate) const KNOWN_SPLITS: &str = "\
select stream, split, stream_id from levada.positions where pipeline = $1 and stream = any($2::text[])";

/// Serialises first claims of one pipeline. Parameter: pipeline.
pub(crate) const LOCK_PIPELINE: &str =
    "select pg_advisory_xact_lock(hashtextextended('levada/' || $1::text, 0))";

/// Stores where splits start. Parameters: pipeline, streams, splits, positions, details, stream ids.
pub(crate) const STORE_STARTS: &str = "\
insert into levada.positions (pipeline, stream, split, next, detail, stream_id)
select $1::text, s.stream, s.split, s.next, s.detail, s.stream_id
from unnest($2::text[], $3::int4[], $4::int8[], $5::bytea[], $6::text[]) as s(stream, split, next, detail, stream_id)
order by s.stream collate \"C\", s.split
on conflict do nothing";

/// Lists who holds up a backend, and whether that is the recorded owner of one of the splits. Parameters: the waiting
/// backend, pipeline, streams, splits, and the prefix of our kind of `application_name`.
pub(crate) const BLOCKERS: &str = "\
select a.pid, coalesce(a.usename, '')::text, coalesce(a.application_name, ''),
    coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::float8,
    starts_with(coalesce(a.application_name, ''), $5) and exists (
        select from levada.positions as p join unnest($3::text[], $4::int4[]) as w(stream, split)
            on p.stream = w.stream and p.split = w.split
        where p.pipeline = $2 and p.owner_pid = a.pid)
from pg_stat_activity as a where a.pid = any(pg_blocking_pids($1))";

/// Ends a backend. Parameter: its process id.
pub(crate) const TERMINATE: &str = "select pg_terminate_backend($1)";

/// Finds the target. Parameter: its quoted name. Oid, schema, name, kind.
pub(crate) const FIND_TABLE: &str = "\
select c.oid, n.nspname::text, c.relname::text, c.relkind::text
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace where c.oid = to_regclass($1)::oid";

/// Reads the target's columns, domains resolved to the type they are made of. Parameter: its oid.
pub(crate) const READ_COLUMNS: &str = "\
with recursive base(attnum, oid, typmod, level) as (
    select attnum, atttypid, atttypmod, 0 from pg_attribute
    where attrelid = $1 and attnum > 0 and not attisdropped
    union all
    select b.attnum, t.typbasetype, case when b.typmod < 0 then t.typtypmod else b.typmod end, b.level + 1
    from base as b join pg_type as t on t.oid = b.oid where t.typtype = 'd'
)
select a.attname::text, b.oid, b.typmod, format_type(b.oid, -1), t.typtype = 'e', a.attnotnull,
    a.attidentity = 'a', a.attgenerated <> '', coalesce(c.collisdeterministic, true),
    a.atthasdef or a.attidentity <> ''
from pg_attribute as a
join (select distinct on (attnum) * from base order by attnum, level desc) as b on b.attnum = a.attnum
join pg_type as t on t.oid = b.oid
left join pg_collation as c on c.oid = a.attcollation
where a.attrelid = $1
order by a.attnum";

/// Reads the unique indexes that an upsert can rest on: whole, valid, immediate, on plain columns. Parameter: the
/// target's oid.
pub(crate) const READ_UNIQUE_INDEXES: &str = "\
select c.relname::text, array_agg(a.attname::text order by k.place)
from pg_index as i
join pg_class as c on c.oid = i.indexrelid
cross join lateral unnest(i.indkey::int2[]) with ordinality as k(attnum, place)
join pg_attribute as a on a.attrelid = i.indrelid and a.attnum = k.attnum
where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indimmediate
    and i.indpred is null and i.indexprs is null and k.place <= i.indnkeyatts
group by c.relname, i.indisprimary
order by i.indisprimary desc, c.relname";

/// Tells whether the schema and the tables of positions are there.
pub(crate) const FIND_POSITIONS: &str = "\
select to_regnamespace('levada') is not null,
    to_regclass('levada.positions') is not null and to_regclass('levada.meta') is not null";

/// Reads the version of the positions table.
pub(crate) const READ_VERSION: &str = "select max(version) from levada.meta";
