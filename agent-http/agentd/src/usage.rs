//! `agentd usage`: the operator's view of the cost of model calls.

use std::io::Write;

use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_platform::usage::{
    MAX_PAGE_ROWS, UsageCursor, UsageDimension, UsageFilter, UsageQuery, UsageRow, UsageStore,
};
use clap::Args;
use jiff::civil::Date;

use crate::command_error::CommandError;
use crate::config::AppConfig;
use crate::stores::Stores;

/// Columns after the columns of the groups.
const SUM_HEADER: &str =
    "runs\tcalls\tinput\tcached\twritten\toutput\treasoning\ttools\tunpriced\testimated (USD)\tcost (USD)";

/// Selection of the sums.
#[derive(Debug, Args)]
pub(crate) struct UsageSelection {
    /// Identifier of the company.
    #[arg(long, value_name = "ID")]
    company: CompanyId,
    /// First day in UTC, such as 2026-01-31; the first of all if absent.
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    from: Option<Date>,
    /// Last day in UTC; the last of all if absent.
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    to: Option<Date>,
    /// Some of day, agent, user, provider, model and caller, separated by commas.
    #[arg(long, value_name = "LIST", default_value = "day,model")]
    group_by: String,
    /// Restrict to an agent.
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// Restrict to a user, or to a widget token: widget:<tokenId>.
    #[arg(long, value_name = "ID")]
    user: Option<UserId>,
}

fn parse_date(text: &str) -> Result<Date, &'static str> {
    text.parse().map_err(|_| "must be a date, such as 2026-01-31")
}

/// Prints a company's sums as a table with tabs.
pub(crate) async fn show(
    selection: UsageSelection,
    config: &AppConfig,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    show_in(&*Stores::open_existing(config).await?.usage, selection, out).await
}

async fn show_in(
    store: &dyn UsageStore,
    selection: UsageSelection,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let UsageSelection { company, from, to, group_by, agent, user } = selection;
    let group_by = UsageQuery::parse_dimensions(&group_by)
        .map_err(|error| CommandError::Argument { argument: "--group-by", problem: error.to_string() })?;
    let filter = UsageFilter { from: from.unwrap_or(Date::ZERO), to: to.unwrap_or(Date::MAX), agent, user };
    if filter.from > filter.to {
        let problem = "must not be after --to".to_owned();
        return Err(CommandError::Argument { argument: "--from", problem });
    }
    let names = group_by.iter().copied().map(UsageDimension::name);
    writeln!(out, "{}", names.chain([SUM_HEADER]).collect::<Vec<_>>().join("\t"))?;
    let mut query = UsageQuery { filter, group_by, after: None, limit: MAX_PAGE_ROWS };
    loop {
        let page = store.usage(&company, &query).await?;
        for row in page.rows {
            writeln!(out, "{}", line(row))?;
        }
        let Some(cursor) = page.next_cursor else { return Ok(()) };
        query.after = UsageCursor::parse(&cursor, query.group_by.len()).ok();
    }
}

/// Returns the cells of a row. Values of groups have no control characters that would break the table.
fn line(UsageRow { group, sums }: UsageRow) -> String {
    let counts = [
        sums.runs,
        sums.calls,
        sums.tokens.input_tokens,
        sums.tokens.cached_input_tokens,
        sums.tokens.cache_write_tokens,
        sums.tokens.output_tokens,
        sums.tokens.reasoning_tokens,
        sums.tool_calls,
        sums.unpriced_calls,
    ];
    let group = group.into_iter().map(|value| value.replace(char::is_control, "\u{fffd}"));
    let counts = counts.into_iter().map(|count| count.to_string());
    let costs = [sums.estimated_cost, sums.cost].map(|cost| cost.to_string());
    group.chain(counts).chain(costs).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use agent_core::tool::Caller;
    use agent_platform::usage::{MemoryUsage, NanoUsd, RunScope, TokenCounts, UsageEntry, UsageOperation};
    use jiff::Timestamp;

    use super::*;

    #[tokio::test]
    async fn sums_of_a_company_are_a_table() {
        let store = MemoryUsage::default();
        let entry = |company: &str, id: &str, model: &str, cost| UsageEntry {
            id: id.to_owned(),
            scope: RunScope {
                company_id: company.into(),
                run_id: "r".into(),
                agent_id: "a".into(),
                user_id: "ada".into(),
                caller: Caller::Session,
                token_id: None,
                visitor: None,
            },
            round: 1,
            attempt: 1,
            operation: UsageOperation::Chat,
            provider: "openai".to_owned(),
            model: model.to_owned(),
            tokens: TokenCounts {
                input_tokens: 7,
                cache_write_tokens: 3,
                output_tokens: 2,
                ..TokenCounts::default()
            },
            tool_calls: 0,
            cost,
            price_as_of: None,
            estimated: cost.is_some(),
            outcome: "ok".to_owned(),
            ended_at: Timestamp::UNIX_EPOCH,
        };
        let entries = vec![
            entry("c1", "1", "gpt-5", Some(NanoUsd::new(1_500_000_001))),
            entry("c1", "2", "x\ty", None),
            entry("c2", "1", "gpt-5", None),
        ];
        store.book(entries).await.expect("booked");
        let selection = |group_by: &str, user: Option<&str>| UsageSelection {
            company: "c1".into(),
            from: None,
            to: None,
            group_by: group_by.to_owned(),
            agent: None,
            user: user.map(UserId::from),
        };
        let show = async |selection| {
            let mut out = Vec::new();
            show_in(&store, selection, &mut out).await.map(|()| String::from_utf8(out).expect("text"))
        };
        let table = show(selection("model,day", None)).await.expect("shown");
        let expected = format!(
            "day\tmodel\t{SUM_HEADER}\n1970-01-01\tgpt-5\t1\t1\t7\t0\t3\t2\t0\t0\t0\t1.500000001\t1.500000001\n\
             1970-01-01\tx\u{fffd}y\t0\t1\t7\t0\t3\t2\t0\t0\t1\t0.000000000\t0.000000000\n"
        );
        assert_eq!(table, expected);
        let total = show(selection("", None)).await.expect("shown");
        assert_eq!(total, format!("{SUM_HEADER}\n1\t2\t14\t0\t6\t4\t0\t0\t1\t1.500000001\t1.500000001\n"));
        assert_eq!(show(selection("", Some("bob"))).await.expect("shown"), format!("{SUM_HEADER}\n"));
        let wrong = show(selection("company", None)).await.expect_err("no dimension");
        assert_eq!(
            wrong.to_string(),
            "--group-by must list some of day, agent, user, provider, model and caller, each once"
        );
        let days = |from, to| UsageSelection { from: Some(from), to: Some(to), ..selection("", None) };
        let (day, next) = (jiff::civil::date(1970, 1, 1), jiff::civil::date(1970, 1, 2));
        assert_eq!(show(days(day, day)).await.expect("shown"), total);
        let wrong = show(days(next, day)).await.expect_err("no days");
        assert_eq!(wrong.to_string(), "--from must not be after --to");
    }
}
