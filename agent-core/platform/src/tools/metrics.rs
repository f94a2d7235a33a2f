//! Tools over metrics. The company's own people reach all of the company's; a visitor of a widget reaches
//! what the agent itself has recorded.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builtin::{ADDS, READS, Stores, tool};
use super::page;
use crate::records::{List, MAX_PAGE, Order};
use crate::workspace::{
    self, MAX_METRIC_NAME_BYTES, MAX_METRIC_UNIT_BYTES, MetricFilter, NewMetric, WorkspaceError, local_time,
    parse_time, utc_time,
};
use agent_core::tool::{Caller, ExecutionContext, LocalTools, ToolError};

pub(super) fn add(tools: LocalTools, stores: &Arc<Stores>) -> LocalTools {
    tools
        .with(tool(
            stores,
            "readMetrics",
            "Reads the company's figures; those that agents recorded come latest first.",
            READS,
            read_metrics,
        ))
        .with(tool(stores, "recordMetric", "Records a figure under a name.", ADDS, record_metric))
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// Only figures of this name.
    name: Option<String>,
    /// Only figures of this time or later: RFC 3339, or a date in the user's time zone.
    from: Option<String>,
    /// Only figures before this time.
    to: Option<String>,
    /// How many figures to give at most; 50 where it is left out.
    #[schemars(range(min = 1, max = MAX_PAGE))]
    limit: Option<usize>,
    /// The nextCursor of the page before.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Metrics {
    /// The figures.
    metrics: Vec<Metric>,
    /// Where the next page begins; absent on the last one. Even a page without figures may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Metric {
    /// The figure's id.
    id: String,
    /// What was measured.
    name: String,
    /// How much.
    value: Value,
    /// In what.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    /// When, RFC 3339 in UTC.
    at: String,
    /// The same in the user's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_time: Option<String>,
}

impl Metric {
    fn new(metric: workspace::Metric, context: &ExecutionContext) -> Self {
        let workspace::Metric { id, name, value, unit, at, .. } = metric;
        let local_time = context.timezone.as_deref().and_then(|zone| local_time(at, zone));
        Self { id, name, value, unit, at: utc_time(at), local_time }
    }
}

async fn read_metrics(stores: &Stores, context: &ExecutionContext, read: Read) -> Result<Metrics, ToolError> {
    let filter = MetricFilter {
        name: read.name,
        agent_id: (context.caller == Caller::Widget).then(|| context.agent_id.clone()),
        from: time("from", read.from.as_deref(), context)?,
        to: time("to", read.to.as_deref(), context)?,
    };
    let list = List { order: Order::Descending, ..page::list(read.limit, read.cursor)? };
    let found = workspace::metrics(&*stores.records, &context.company_id, &filter, &list).await?;
    let metrics = found.items.into_iter().map(|metric| Metric::new(metric, context)).collect();
    Ok(Metrics { metrics, next_cursor: found.next_cursor })
}

#[derive(Deserialize, JsonSchema)]
struct Record {
    /// What was measured; the same name for the same thing.
    #[schemars(length(min = 1, max = MAX_METRIC_NAME_BYTES))]
    name: String,
    /// How much.
    value: f64,
    /// In what, such as EUR or minutes.
    #[schemars(length(min = 1, max = MAX_METRIC_UNIT_BYTES))]
    unit: Option<String>,
    /// When, if not now: RFC 3339, or a date in the user's time zone.
    at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Recorded {
    /// The figure.
    metric: Metric,
}

async fn record_metric(
    stores: &Stores,
    context: &ExecutionContext,
    given: Record,
) -> Result<Recorded, ToolError> {
    let Record { name, value, unit, at } = given;
    let at = time("at", at.as_deref(), context)?.unwrap_or_else(|| stores.now());
    let metric = NewMetric { name, value, unit, at };
    let (company, agent) = (context.company_id.as_str(), context.agent_id.as_str());
    let metric = workspace::record_metric(&*stores.records, company, agent, &metric).await?;
    Ok(Recorded { metric: Metric::new(metric, context) })
}

fn time(
    field: &'static str,
    text: Option<&str>,
    context: &ExecutionContext,
) -> Result<Option<jiff::Timestamp>, WorkspaceError> {
    let time = text.map(|text| parse_time(text, context.timezone.as_deref())).transpose();
    time.map_err(|fault| WorkspaceError::Invalid { field, fault })
}
