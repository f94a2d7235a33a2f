//! Mapping between entries of usage and their table rows, common to all databases. The format is part of the schema version.

use agent_platform::records::StoreError;
use agent_platform::usage::{
    DayKey, NanoUsd, TokenCounts, UsageDimension, UsageEntry, UsageQuery, UsageRow, UsageSums,
};

/// Columns of the ledger that are written, in the order of [`CallRow`].
pub(crate) const CALL_COLUMNS: &str = "company, id, run, ended_ms, body";
/// Columns of a day's key, in the order of [`DayRow::key`].
pub(crate) const KEY_COLUMNS: [&str; 8] =
    ["company", "day", "agent", "user_id", "caller", "provider", "model", "operation"];
/// Columns of a day's sums, in the order of [`DayRow::sums`].
pub(crate) const SUM_COLUMNS: [&str; 11] = [
    "runs",
    "calls",
    "input",
    "cached_input",
    "cache_write",
    "output",
    "reasoning",
    "tool_calls",
    "cost",
    "estimated_cost",
    "unpriced_calls",
];

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallRow {
    /// Position in the ledger; not read for a row that is written.
    pub(crate) n: i64,
    pub(crate) company: String,
    pub(crate) id: String,
    pub(crate) run: String,
    pub(crate) ended_ms: i64,
    pub(crate) body: String,
}

impl CallRow {
    pub(crate) fn new(entry: &UsageEntry) -> Result<Self, StoreError> {
        Ok(Self {
            n: 0,
            company: entry.scope.company_id.to_string(),
            id: entry.id.clone(),
            run: entry.scope.run_id.to_string(),
            ended_ms: entry.ended_at.as_millisecond(),
            body: serde_json::to_string(entry).map_err(StoreError::unavailable)?,
        })
    }
}

/// Parses the body of a row of the ledger.
pub(crate) fn parse_entry(body: &str) -> Result<UsageEntry, StoreError> {
    serde_json::from_str(body).map_err(StoreError::unavailable)
}

/// A row of the sums by day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DayRow {
    pub(crate) key: [String; KEY_COLUMNS.len()],
    pub(crate) sums: [i64; SUM_COLUMNS.len()],
}

impl DayRow {
    pub(crate) fn new(key: DayKey, sums: &UsageSums) -> Self {
        let DayKey { company_id, day, agent_id, user_id, caller, provider, model, operation } = key;
        let UsageSums { runs, calls, tokens, tool_calls, cost, estimated_cost, unpriced_calls } = sums;
        let TokenCounts {
            input_tokens,
            cached_input_tokens,
            cache_write_tokens,
            output_tokens,
            reasoning_tokens,
        } = tokens;
        let number = |count: &u64| i64::try_from(*count).unwrap_or(i64::MAX);
        Self {
            key: [
                company_id.to_string(),
                day.to_string(),
                agent_id.to_string(),
                user_id.to_string(),
                caller.to_owned(),
                provider,
                model,
                operation.as_str().to_owned(),
            ],
            sums: [
                number(runs),
                number(calls),
                number(input_tokens),
                number(cached_input_tokens),
                number(cache_write_tokens),
                number(output_tokens),
                number(reasoning_tokens),
                number(tool_calls),
                cost.get(),
                estimated_cost.get(),
                number(unpriced_calls),
            ],
        }
    }
}

/// Returns the sums that the columns of [`SUM_COLUMNS`] have.
pub(crate) fn sums(columns: [i64; SUM_COLUMNS.len()]) -> UsageSums {
    let [runs, calls, input, cached, write, output, reasoning, tool_calls, cost, estimated, unpriced] =
        columns;
    let number = |column: i64| u64::try_from(column).unwrap_or_default();
    UsageSums {
        runs: number(runs),
        calls: number(calls),
        tokens: TokenCounts {
            input_tokens: number(input),
            cached_input_tokens: number(cached),
            cache_write_tokens: number(write),
            output_tokens: number(output),
            reasoning_tokens: number(reasoning),
        },
        tool_calls: number(tool_calls),
        cost: NanoUsd::new(cost),
        estimated_cost: NanoUsd::new(estimated),
        unpriced_calls: number(unpriced),
    }
}

/// Builds a row of a page from the values of its group and its sums.
pub(crate) fn usage_row(group: Vec<String>, columns: [i64; SUM_COLUMNS.len()]) -> UsageRow {
    UsageRow { group, sums: sums(columns) }
}

/// Returns the SQL assignments that add new sums to stored ones and stop at `i64::MAX`. `stored` is the prefix of the
/// stored columns, `min_function` the SQL function that returns the lesser of two numbers.
pub(crate) fn added_sums(stored: &str, min_function: &str) -> String {
    let added = |column: &&str| {
        format!(
            "{column} = {min_function}({stored}{column}, {} - excluded.{column}) + excluded.{column}",
            i64::MAX
        )
    };
    SUM_COLUMNS.iter().map(added).collect::<Vec<_>>().join(", ")
}

/// A query of sums as SQL, with the text values of its parameters.
pub(crate) struct SumQuery {
    pub(crate) sql: String,
    pub(crate) values: Vec<String>,
}

impl SumQuery {
    /// Builds the query. `parameter` formats the placeholder of a parameter, `text_to_number` and `sum` format
    /// expressions.
    pub(crate) fn new(
        company: &str,
        query: &UsageQuery,
        parameter: fn(usize) -> String,
        text_to_number: fn(&str) -> String,
        sum: fn(&str) -> String,
    ) -> Self {
        let filter = &query.filter;
        let mut values = vec![company.to_owned(), filter.from.to_string(), filter.to.to_string()];
        let mut conditions =
            format!("company = {} AND day >= {} AND day <= {}", parameter(1), parameter(2), parameter(3));
        let equal = [("agent", filter.agent.as_deref()), ("user_id", filter.user.as_deref())];
        for (column, value) in equal {
            if let Some(value) = value {
                values.push(value.to_owned());
                conditions += &format!(" AND {column} = {}", parameter(values.len()));
            }
        }
        let groups: Vec<&str> =
            query.group_by.iter().map(|dimension| UsageDimension::column(*dimension)).collect();
        let columns = groups.join(", ");
        if let Some(after) = query.after.as_ref().filter(|after| after.0.len() == groups.len()) {
            let placeholders: Vec<String> = (1..=groups.len()).map(|n| parameter(values.len() + n)).collect();
            conditions += &format!(" AND ({columns}) > ({})", placeholders.join(", "));
            values.extend(after.0.iter().cloned());
        }
        values.push((query.page_size() + 1).to_string());
        let limit = text_to_number(&parameter(values.len()));
        let sums: Vec<String> = SUM_COLUMNS.iter().map(|column| sum(column)).collect();
        let selected = groups.iter().map(ToString::to_string).chain(sums).collect::<Vec<_>>().join(", ");
        let (group_by, order_by) = match groups.is_empty() {
            true => (String::new(), String::new()),
            false => (format!(" GROUP BY {columns}"), format!(" ORDER BY {columns}")),
        };
        let sql = format!(
            "SELECT {selected} FROM usage_days WHERE {conditions}{group_by} HAVING count(*) > 0{order_by} LIMIT {limit}"
        );
        Self { sql, values }
    }
}
