//! Whether the server can find a key by an index.

use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;
use tracing::{debug, warn};

use crate::sink::session::{Session, answered};

use super::plan::Plan;
use super::sql;

/// Asks for the plan of a lookup, and returns a warning for each table that would be read as a whole. A server that does
/// not tell is no reason not to start.
pub(crate) async fn check(session: &Session, plan: &Plan) -> Vec<String> {
    let asked = answered(session.patience, async {
        let asked = session.client.simple_query(&sql::explain(&plan.one, plan.parameters.len())).await;
        let _ = session.client.batch_execute(sql::END_EXPLAIN).await;
        let _ = session.client.batch_execute(sql::FORGET_EXPLAINED).await;
        asked
    });
    let messages = match asked.await {
        Ok(messages) => messages,
        Err(failure) => {
            debug!(error = %failure.cause, "the server does not tell how it would look a key up");
            return Vec::new();
        }
    };
    let text = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let tree: Value = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let warnings: Vec<String> = read_whole(&tree)
        .into_iter()
        .map(|table| {
            format!(
                "a lookup of {} reads the whole of {table}: no index finds the key ({}); each call takes as long as \
                 the table is large",
                plan.target,
                plan.parameters.iter().map(|part| &*part.name).collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    for warning in &warnings {
        warn!("{warning}");
    }
    warnings
}

/// Lists the tables that a plan reads without a condition on an index.
fn read_whole(tree: &Value) -> Vec<String> {
    match tree {
        Value::Array(nodes) => nodes.iter().flat_map(read_whole).collect(),
        Value::Object(node) => {
            let text = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default();
            let kind = text("Node Type");
            let by_index = matches!(kind, "Index Scan" | "Index Only Scan" | "Bitmap Index Scan");
            let is_whole = kind == "Seq Scan" || (by_index && !node.contains_key("Index Cond"));
            let mut found: Vec<String> = node.values().flat_map(read_whole).collect();
            if is_whole {
                found.insert(0, text("Relation Name").to_owned());
            }
            found
        }
        _ => Vec::new(),
    }
}
