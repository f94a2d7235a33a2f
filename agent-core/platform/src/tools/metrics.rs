//! Tools over metrics. The company's own users reach all of the company's values; a widget's visitor reaches those
//! that the agent itself has recorded.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::builtin::{ADDITIVE, READ_ONLY, Stores, tool};
use super::page;
use crate::records::{ListQuery, MAX_PAGE_RECORDS, Order};
use crate::workspace::{
    self, MAX_METRIC_NAME_BYTES, MAX_METRIC_UNIT_BYTES, MetricFilter, NewMetric, WorkspaceError, local_time,
    parse_time, utc_time,
};
use agent_core::tool::{Caller, ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "readMetrics",
            "Reads the company's metrics; those recorded by agents are sorted newest first.",
            READ_ONLY,
            read_metrics,
        ))
        .with_tool(tool(stores, "recordMetric", "Records a value of a metric.", ADDITIVE, record_metric))
}

#[derive(Deserialize, JsonSchema)]
struct ReadMetricsArguments {
    /// Only values of this metric.
    name: Option<String>,
    /// Only values at this time or later: RFC 3339, or a date in the user's time zone.
    from: Option<String>,
    /// Only values before this time.
    to: Option<String>,
    /// Maximum number of values; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
    /// The nextCursor of the previous page.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadMetricsResult {
    /// The values.
    metrics: Vec<MetricResult>,
    /// The cursor of the next page; absent on the last page. Even an empty page may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MetricResult {
    /// The value's id.
    id: String,
    /// The name of the metric.
    name: String,
    /// The measured value.
    value: Value,
    /// The unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    /// The time of the measurement, RFC 3339 in UTC.
    at: String,
    /// The same time in the user's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_time: Option<String>,
}

impl MetricResult {
    fn new(metric: workspace::Metric, context: &ExecutionContext) -> Self {
        let workspace::Metric { id, name, value, unit, at, .. } = metric;
        let local_time = context.timezone.as_deref().and_then(|zone| local_time(at, zone));
        Self { id, name, value, unit, at: utc_time(at), local_time }
    }
}

async fn read_metrics(
    stores: &Stores,
    context: &ExecutionContext,
    read: ReadMetricsArguments,
) -> Result<ReadMetricsResult, ToolError> {
    let filter = MetricFilter {
        name: read.name,
        agent_id: (context.caller == Caller::Widget).then(|| context.agent_id.clone()),
        from: parse_time_argument("from", read.from.as_deref(), context)?,
        to: parse_time_argument("to", read.to.as_deref(), context)?,
    };
    let list = ListQuery { order: Order::Descending, ..page::parse_page(read.limit, read.cursor)? };
    let page = workspace::list_metrics(&*stores.records, &context.company_id, &filter, &list).await?;
    let metrics = page.items.into_iter().map(|metric| MetricResult::new(metric, context)).collect();
    Ok(ReadMetricsResult { metrics, next_cursor: page.next_cursor })
}

#[derive(Deserialize, JsonSchema)]
struct RecordMetricArguments {
    /// The name of the metric; use the same name for the same metric.
    #[schemars(length(min = 1, max = MAX_METRIC_NAME_BYTES))]
    name: String,
    /// The measured value.
    value: f64,
    /// The unit, such as EUR or minutes.
    #[schemars(length(min = 1, max = MAX_METRIC_UNIT_BYTES))]
    unit: Option<String>,
    /// The time of the measurement, if not now: RFC 3339, or a date in the user's time zone.
    at: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct RecordMetricResult {
    /// The recorded value.
    metric: MetricResult,
}

async fn record_metric(
    stores: &Stores,
    context: &ExecutionContext,
    arguments: RecordMetricArguments,
) -> Result<RecordMetricResult, ToolError> {
    let RecordMetricArguments { name, value, unit, at } = arguments;
    let at = parse_time_argument("at", at.as_deref(), context)?.unwrap_or_else(|| stores.now());
    let metric = NewMetric { name, value, unit, at };
    let (company, agent) = (&context.company_id, &context.agent_id);
    let metric = workspace::record_metric(&*stores.records, company, agent, &metric).await?;
    Ok(RecordMetricResult { metric: MetricResult::new(metric, context) })
}

fn parse_time_argument(
    field: &'static str,
    text: Option<&str>,
    context: &ExecutionContext,
) -> Result<Option<jiff::Timestamp>, WorkspaceError> {
    let time = text.map(|text| parse_time(text, context.timezone.as_deref())).transpose();
    time.map_err(|fault| WorkspaceError::Invalid { field, fault })
}
