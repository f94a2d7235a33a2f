//! Metrics of a company: named values over time.
//!
//! Workspace files may contain metrics of any shape; fields without a typed counterpart are ignored.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::record_counters::create_counted;
use super::text::{self, checked_line};
use super::time::{timestamp, utc_time};
use super::view::{ListPage, list_projected};
use super::{FreeFormItem, WorkspaceError, collection};
use crate::records::{Collection, ListQuery, Record, Records, StoreError, to_json};
use agent_core::ids::{AgentId, CompanyId};

/// Maximum size of a metric's name, in bytes.
pub(crate) const MAX_METRIC_NAME_BYTES: usize = 200;
/// Maximum size of a metric's unit, in bytes.
pub(crate) const MAX_METRIC_UNIT_BYTES: usize = 50;
/// Maximum number of values recorded by one agent.
pub(crate) const MAX_METRICS_PER_AGENT: usize = 100_000;

/// Recorded value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Identifier of the value.
    pub id: String,
    /// Name of the metric.
    pub name: String,
    /// Measured value; a number, unless a workspace file contained something else.
    pub value: Value,
    /// Unit of the value.
    pub unit: Option<String>,
    /// Time of the measurement: its `at`, or else when the record was written.
    pub at: Timestamp,
    /// Agent that recorded the value.
    pub agent_id: Option<AgentId>,
}

impl From<Record<FreeFormItem>> for Metric {
    fn from(record: Record<FreeFormItem>) -> Self {
        let FreeFormItem { id, mut rest, .. } = record.value;
        let value = rest.remove("value").unwrap_or_default();
        let text = |name: &str| rest.get(name).and_then(Value::as_str);
        Self {
            id,
            name: text("name").unwrap_or_default().to_owned(),
            value,
            unit: text("unit").map(str::to_owned),
            at: text("at").and_then(|at| at.parse().ok()).unwrap_or_else(|| timestamp(record.updated)),
            agent_id: text("agentId").map(AgentId::from),
        }
    }
}

/// Filter of metric values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricFilter {
    /// Restricts to this name.
    pub name: Option<String>,
    /// Restricts to values recorded by this agent.
    pub agent_id: Option<AgentId>,
    /// Restricts to this time or later.
    pub from: Option<Timestamp>,
    /// Restricts to before this time.
    pub to: Option<Timestamp>,
}

impl MetricFilter {
    fn matches(&self, metric: &Metric) -> bool {
        self.name.as_ref().is_none_or(|name| *name == metric.name)
            && self.agent_id.as_ref().is_none_or(|agent| metric.agent_id.as_ref() == Some(agent))
            && self.from.is_none_or(|from| metric.at >= from)
            && self.to.is_none_or(|to| metric.at < to)
    }
}

/// Returns one page of the company's values. Recorded values are in the order of recording, imported ones ordered by
/// id.
pub async fn list_metrics(
    records: &dyn Records,
    company_id: &CompanyId,
    filter: &MetricFilter,
    list: &ListQuery,
) -> Result<ListPage<Metric>, StoreError> {
    let metrics = Collection::new(company_id, collection::METRICS)?;
    let matching_metric =
        |record: Record<FreeFormItem>| Some(Metric::from(record)).filter(|metric| filter.matches(metric));
    list_projected(records, &metrics, list, matching_metric).await
}

/// Metric value to record.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMetric {
    /// Name of the metric.
    pub name: String,
    /// Measured value; must be finite.
    pub value: f64,
    /// Unit of the value.
    pub unit: Option<String>,
    /// Time of the measurement.
    pub at: Timestamp,
}

/// Records a value for an agent and returns it with its identifier.
pub async fn record_metric(
    records: &dyn Records,
    company_id: &CompanyId,
    agent_id: &AgentId,
    metric: &NewMetric,
) -> Result<Metric, WorkspaceError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Stored<'a> {
        id: &'a str,
        company_id: &'a CompanyId,
        agent_id: &'a AgentId,
        name: &'a str,
        value: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        unit: Option<&'a str>,
        at: String,
    }
    let name = checked_line(&metric.name, MAX_METRIC_NAME_BYTES).map_err(text::invalid_field("name"))?;
    let unit = metric.unit.as_deref().map(|unit| checked_line(unit, MAX_METRIC_UNIT_BYTES));
    let unit = unit.transpose().map_err(text::invalid_field("unit"))?;
    let value = serde_json::Number::from_f64(metric.value);
    let value = value.ok_or_else(|| text::invalid_field("value")("is not a finite number".to_owned()))?;
    let id = agent_core::new_id();
    let stored =
        Stored { id: &id, company_id, agent_id, name, value: metric.value, unit, at: utc_time(metric.at) };
    let key = Collection::new(company_id, collection::METRICS)?.key(id.as_str())?;
    // The collection's name and an agent id together are short enough for the id of a key.
    let counter = format!("{}/{agent_id}", collection::METRICS);
    let limit = ("agent's record of metrics", MAX_METRICS_PER_AGENT);
    create_counted(records, (&key, to_json(&stored)?), &counter, limit).await?;
    Ok(Metric {
        id,
        name: name.to_owned(),
        value: value.into(),
        unit: unit.map(str::to_owned),
        at: metric.at,
        agent_id: Some(agent_id.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::memory::MemoryRecords;
    use crate::records::{Precondition, RecordsExt};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn metrics_are_found_by_name_time_and_agent() {
        let records = MemoryRecords::default();
        let metrics_of_c = Collection::new("c", collection::METRICS).expect("a name");
        for entry in [
            json!({"id": "1", "companyId": "c", "name": "sales", "value": 1, "unit": "EUR", "at": "2026-01-01T00:00:00Z"}),
            json!({"id": "2", "companyId": "c", "name": 7, "value": "much", "at": "soon"}),
        ] {
            let key = metrics_of_c.key(entry["id"].as_str().expect("an id")).expect("a key");
            records.put_as(&key, &entry, Precondition::Absent).now_or_never().expect("no wait").expect("put");
        }
        for (agent, name, day) in [("a", "sales", 2), ("b", "sales", 3), ("b", "visits", 4)] {
            let at = at("2026-01-01T00:00:00Z") + Duration::from_hours(24 * (day - 1));
            let metric = NewMetric { name: name.into(), value: day as f64, unit: None, at };
            let recorded =
                record_metric(&records, &"c".into(), &agent.into(), &metric).now_or_never().expect("no wait");
            assert_eq!(recorded.expect("recorded").at, at);
        }
        let day = |n| Some(at(&format!("2026-01-0{n}T00:00:00Z")));
        let sales = || Some("sales".to_owned());
        let all = MetricFilter::default();
        for (filter, expected) in [
            (MetricFilter { name: sales(), ..all.clone() }, &["2.0", "3.0", "1"][..]),
            (MetricFilter { from: day(2), to: day(4), ..all.clone() }, &["2.0", "3.0"]),
            (MetricFilter { agent_id: Some("b".into()), ..all.clone() }, &["3.0", "4.0"]),
            (MetricFilter { name: sales(), agent_id: Some("c".into()), ..all.clone() }, &[]),
            (all.clone(), &["2.0", "3.0", "4.0", "1", "\"much\""]),
        ] {
            let listed_metrics = list_metrics(&records, &"c".into(), &filter, &ListQuery::default())
                .now_or_never()
                .expect("no wait");
            let values: Vec<_> =
                listed_metrics.expect("read").items.iter().map(|m| m.value.to_string()).collect();
            assert_eq!(values, expected, "{filter:?}");
        }
        let elsewhere =
            list_metrics(&records, &"d".into(), &all, &ListQuery::default()).now_or_never().expect("no wait");
        assert_eq!(elsewhere.expect("read").items, []);
    }

    #[test]
    fn invalid_metrics_are_refused() {
        let records = MemoryRecords::default();
        let good = NewMetric { name: "n".into(), value: 1.0, unit: None, at: Timestamp::UNIX_EPOCH };
        let long = "x".repeat(MAX_METRIC_NAME_BYTES + 1);
        for (metric, expected) in [
            (NewMetric { name: " ".into(), ..good.clone() }, "name: is blank"),
            (NewMetric { name: long, ..good.clone() }, "name: has 201 bytes; the limit is 200"),
            (NewMetric { value: f64::NAN, ..good.clone() }, "value: is not a finite number"),
            (
                NewMetric { unit: Some("a\nb".into()), ..good },
                "unit: has a line break or another control character",
            ),
        ] {
            let refused =
                record_metric(&records, &"c".into(), &"a".into(), &metric).now_or_never().expect("no wait");
            assert_eq!(refused.expect_err("refused").to_string(), expected);
        }
    }
}
