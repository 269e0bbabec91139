//! The statements' texts, as functions of names and types.

use crate::quote::{Identifier, TableName};
use crate::sink::encode::ColumnType;

use super::named::NamedQuery;

/// Under which name a batch's keys stand in its statement. Long, so that no query has it already.
const KEYS: &str = "levada_lookup_key";

/// Makes all transactions of the session read-only.
pub(crate) const READ_ONLY: &str = "set default_transaction_read_only = on";

/// Finds the names of types, for casts.
pub(crate) const NAME_TYPE: &str = "select format_type($1::oid, -1)";

/// What [`explain`] leaves behind.
pub(crate) const END_EXPLAIN: &str = "rollback";

/// How many rows of one key are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Up(u32),
    All,
}

impl Limit {
    /// Ends a subquery. Without a limit the offset keeps the planner from joining some other way than key by key, by the
    /// index: it has no idea how many keys there will be, and would read whole tables for them.
    fn end(self) -> String {
        match self {
            Limit::Up(limit) => format!("limit {limit}"),
            Limit::All => "offset 0".to_owned(),
        }
    }
}

/// A lookup by the columns of a table, as a query with parameters in the order of `key`, then the time.
pub(crate) fn by_table(
    table: &TableName,
    wanted: &[Identifier],
    key: &[Identifier],
    order: &[(Identifier, bool)],
    version: Option<&Identifier>,
) -> String {
    let columns = list(wanted, ", ", |name| format!("t.{name}"));
    let mut conditions =
        list(key.iter().enumerate(), " and ", |(number, name)| format!("t.{name} = :k{number}"));
    let mut order: Vec<String> = order
        .iter()
        .map(|(name, is_descending)| format!("t.{name}{}", if *is_descending { " desc" } else { "" }))
        .collect();
    if let Some(version) = version {
        conditions.push_str(&format!(" and t.{version} <= :k{}", key.len()));
        order.insert(0, format!("t.{version} desc"));
    }
    let order = match order.is_empty() {
        true => String::new(),
        false => format!(" order by {}", order.join(", ")),
    };
    format!("select {columns} from {table} as t where {conditions}{order}")
}

/// The query as it is prepared to learn its types from the server.
pub(crate) fn to_learn(query: &NamedQuery) -> String {
    query.text_with(|number| format!("${}", number + 1))
}

/// Looks one key up.
pub(crate) fn one(query: &NamedQuery, parameters: &[ColumnType], as_text: &[bool], limit: Limit) -> String {
    let text = query.text_with(|number| {
        let ty = &parameters[number];
        cast(&format!("${}::{}", number + 1, ty.wire_name()), ty)
    });
    format!(
        "select {} from (select * from ({text}) as r {}) as q({})",
        outputs(as_text),
        limit.end(),
        aliases(as_text.len())
    )
}

/// Looks many keys up: each parameter is an array. The first column is the key's place, from one on.
pub(crate) fn many(query: &NamedQuery, parameters: &[ColumnType], as_text: &[bool], limit: Limit) -> String {
    let text = query.text_with(|number| cast(&format!("{KEYS}.p{number}"), &parameters[number]));
    let arrays = list(parameters.iter().enumerate(), ", ", |(number, ty)| {
        format!("${}::{}[]", number + 1, ty.wire_name())
    });
    let names = list(0..parameters.len(), ", ", |number| format!("p{number}"));
    format!(
        "select {KEYS}.place, {} from unnest({arrays}) with ordinality as {KEYS}({names}, place) \
         cross join lateral (select * from ({text}) as r {}) as q({})",
        outputs(as_text),
        limit.end(),
        aliases(as_text.len())
    )
}

/// Reads the whole table: the key's columns, then the wanted ones.
pub(crate) fn whole(
    table: &TableName,
    key: &[(Identifier, ColumnType)],
    wanted: &[(Identifier, bool)],
    order: &[(Identifier, bool)],
) -> String {
    let key = list(key, ", ", |(name, ty)| match ty.cast() {
        Some(_) => format!("t.{name}::text"),
        None => format!("t.{name}"),
    });
    let wanted =
        list(wanted, ", ", |(name, as_text)| format!("t.{name}{}", if *as_text { "::text" } else { "" }));
    let order = match order.is_empty() {
        true => String::new(),
        false => format!(
            " order by {}",
            list(order, ", ", |(name, is_descending)| {
                format!("t.{name}{}", if *is_descending { " desc" } else { "" })
            })
        ),
    };
    format!("select {key}, {wanted} from {table} as t{order}")
}

/// Asks how the server would look a key up if it could not simply read the whole table.
pub(crate) fn explain(one: &str, parameters: usize) -> String {
    let nulls = list(0..parameters, ", ", |_| "null".to_owned());
    format!(
        "begin; set local enable_seqscan = off; set local plan_cache_mode = force_generic_plan; \
         prepare levada_lookup_explain as {one}; explain (format json) execute levada_lookup_explain({nulls})"
    )
}

/// Forgets what [`explain`] has prepared.
pub(crate) const FORGET_EXPLAINED: &str = "deallocate levada_lookup_explain";

/// Listens to a channel.
pub(crate) fn listen(channel: &Identifier) -> String {
    format!("listen {channel}")
}

fn cast(value: &str, ty: &ColumnType) -> String {
    match ty.cast() {
        Some(name) => format!("({value})::{name}"),
        None => value.to_owned(),
    }
}

fn outputs(as_text: &[bool]) -> String {
    list(as_text.iter().enumerate(), ", ", |(number, as_text)| {
        format!("q.c{number}{}", if *as_text { "::text" } else { "" })
    })
}

fn aliases(count: usize) -> String {
    list(0..count, ", ", |number| format!("c{number}"))
}

fn list<T>(items: impl IntoIterator<Item = T>, separator: &str, print: impl Fn(T) -> String) -> String {
    items.into_iter().map(print).collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [LKP-03] one text for any number of keys.
    #[test]
    fn batch_is_one_statement_over_arrays() {
        let name = |name: &str| Identifier::new(name).expect("a name");
        let table = TableName::in_schema("public", "t").expect("a name");
        let text = by_table(&table, &[name("a\"b")], &[name("k"), name("l")], &[], None);
        assert_eq!(text, r#"select t."a""b" from "public"."t" as t where t."k" = :k0 and t."l" = :k1"#);
        let enumeration = ColumnType::Cast { sql: "mood".to_owned(), text_is_canonical: true };
        let many = many(&NamedQuery::parse(&text), &[ColumnType::Int4, enumeration], &[true], Limit::Up(1));
        assert_eq!(
            many.replace('\n', ""),
            r#"select levada_lookup_key.place, q.c0::text from unnest($1::int4[], $2::text[]) with ordinality as levada_lookup_key(p0, p1, place) cross join lateral (select * from (select t."a""b" from "public"."t" as t where t."k" = levada_lookup_key.p0 and t."l" = (levada_lookup_key.p1)::mood) as r limit 1) as q(c0)"#
        );
    }
}
