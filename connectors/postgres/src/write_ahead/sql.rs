//! The statements about markers and fences.

/// The version of the tables that this code reads and writes.
pub(crate) const MARKERS_VERSION: i32 = 1;

/// A marker for each segment that was sent and may still be asked about; and for each sink the opening that may send.
pub(crate) const MARKERS_TABLES: &str = "\
create table if not exists levada.markers_meta (version int not null);
insert into levada.markers_meta select 1 where not exists (select from levada.markers_meta);
create table if not exists levada.markers (
    job          text        not null,
    uid          text        not null,
    subtask      int         not null,
    attempt      bigint      not null,
    sequence     bigint      not null,
    committed_at timestamptz not null default now(),
    primary key (job, uid, subtask, attempt, sequence)
);
create table if not exists levada.fences (
    job        text        not null,
    uid        text        not null,
    attempt    bigint      not null,
    sequence   bigint      not null,
    owner      text        not null default '',
    updated_at timestamptz not null default now(),
    primary key (job, uid)
);
";

/// Tells whether the schema and the tables are there.
pub(crate) const FIND_MARKERS: &str = "\
select to_regnamespace('levada') is not null,
    to_regclass('levada.markers') is not null and to_regclass('levada.fences') is not null
        and to_regclass('levada.markers_meta') is not null";

/// Reads the version of the tables.
pub(crate) const READ_VERSION: &str = "select max(version) from levada.markers_meta";

/// Tells the user's quoted name, and whether it may do everything.
pub(crate) const ASK_PRIVILEGES: &str = "\
select quote_ident(current_user),
    has_table_privilege('levada.markers', 'select') and has_table_privilege('levada.markers', 'insert')
        and has_table_privilege('levada.markers', 'delete') and has_table_privilege('levada.fences', 'select')
        and has_table_privilege('levada.fences', 'insert') and has_table_privilege('levada.fences', 'update')
        and has_table_privilege('levada.markers_meta', 'select')";

/// What [`ASK_PRIVILEGES`] asks for.
pub(crate) const GRANT_PRIVILEGES: &str = "\
grant usage on schema levada to {user};
grant select, insert, delete on levada.markers to {user};
grant select, insert, update on levada.fences to {user};
grant select on levada.markers_meta to {user};
";

/// Reads which opening may send. Parameters: job, uid.
pub(crate) const READ_FENCE: &str =
    "select attempt, sequence, owner, updated_at::text from levada.fences where job = $1 and uid = $2";

/// Lets an opening send, and none before it; changes no row if a later one was here. It waits for transactions of earlier
/// ones. Parameters: job, uid, attempt, sequence, owner.
pub(crate) const RAISE_FENCE: &str = "\
insert into levada.fences as f (job, uid, attempt, sequence, owner) values ($1, $2, $3, $4, $5)
on conflict (job, uid) do update
    set attempt = excluded.attempt, sequence = excluded.sequence, owner = excluded.owner, updated_at = now()
    where (f.attempt, f.sequence) <= (excluded.attempt, excluded.sequence)";

/// Fails in the server, with a division by zero, unless the fence is as this opening has left it. The row stays locked, so
/// that a later opening waits for this transaction. Parameters: job, uid, attempt, sequence.
pub(crate) const CHECK_FENCE: &str = "\
select 1 / coalesce(bool_and(f.attempt = $3::int8 and f.sequence = $4::int8), false)::int
from (select attempt, sequence from levada.fences where job = $1 and uid = $2 for share) as f";

/// Writes a marker, or fails because it is there; waits for whoever is writing it. Parameters: job, uid, subtask, attempt,
/// sequence.
pub(crate) const WRITE_MARKER: &str =
    "insert into levada.markers (job, uid, subtask, attempt, sequence) values ($1, $2, $3, $4, $5)";

/// The same, changing no row if it is there.
pub(crate) const WRITE_MARKER_ONCE: &str = "\
insert into levada.markers (job, uid, subtask, attempt, sequence) values ($1, $2, $3, $4, $5)
on conflict do nothing";

/// Looks for a marker. Parameters as in [`WRITE_MARKER`].
pub(crate) const FIND_MARKER: &str = "\
select exists (
    select from levada.markers
    where job = $1 and uid = $2 and subtask = $3 and attempt = $4 and sequence = $5)";

/// Removes markers. Parameters: arrays of what a marker is made of.
pub(crate) const FORGET_MARKERS: &str = "\
delete from levada.markers as m
using unnest($1::text[], $2::text[], $3::int4[], $4::int8[], $5::int8[]) as w(job, uid, subtask, attempt, sequence)
where m.job = w.job and m.uid = w.uid and m.subtask = w.subtask and m.attempt = w.attempt and m.sequence = w.sequence";
