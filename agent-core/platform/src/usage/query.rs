//! Queries of the sums by day.

use std::str::FromStr;

use agent_core::ids::{AgentId, UserId};
use jiff::civil::Date;

use super::UsageSums;

/// Default number of rows on a page.
pub const DEFAULT_PAGE_ROWS: usize = 100;
/// Maximum number of rows on a page.
pub const MAX_PAGE_ROWS: usize = 1_000;
/// Maximum number of days that one query covers.
pub const MAX_QUERY_DAYS: i32 = 400;

/// Property that groups the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageDimension {
    /// Day in UTC.
    Day,
    /// Agent.
    Agent,
    /// User.
    User,
    /// Provider of the model.
    Provider,
    /// Model.
    Model,
    /// Kind of caller.
    Caller,
}

impl UsageDimension {
    /// All dimensions.
    pub const ALL: [Self; 6] =
        [Self::Day, Self::Agent, Self::User, Self::Provider, Self::Model, Self::Caller];

    /// Returns the name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Agent => "agent",
            Self::User => "user",
            Self::Provider => "provider",
            Self::Model => "model",
            Self::Caller => "caller",
        }
    }

    /// Returns the name of the member in a row's JSON.
    pub fn member(self) -> &'static str {
        match self {
            Self::Agent => "agentId",
            Self::User => "userId",
            other => other.name(),
        }
    }

    /// Returns the name of the column in tables.
    pub fn column(self) -> &'static str {
        match self {
            Self::User => "user_id",
            other => other.name(),
        }
    }
}

/// Error of a query, worded to follow the name of the parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageQueryError {
    /// The name is not the name of a dimension, or occurs twice.
    #[error("must list some of day, agent, user, provider, model and caller, each once")]
    Dimension,
    /// No page returned the cursor.
    #[error("is invalid")]
    Cursor,
}

impl FromStr for UsageDimension {
    type Err = UsageQueryError;

    fn from_str(name: &str) -> Result<Self, UsageQueryError> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or(UsageQueryError::Dimension)
    }
}

/// Entries that a query sums up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFilter {
    /// First day.
    pub from: Date,
    /// Last day.
    pub to: Date,
    /// Filters by agent.
    pub agent: Option<AgentId>,
    /// Restricts to a user.
    pub user: Option<UserId>,
}

/// Query of a company's sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// Entries to sum up.
    pub filter: UsageFilter,
    /// Dimensions to group by; without any there is one row. Rows are in the order of these values.
    pub group_by: Vec<UsageDimension>,
    /// Position after which the page begins.
    pub after: Option<UsageCursor>,
    /// Maximum number of rows.
    pub limit: usize,
}

impl UsageQuery {
    /// Returns the maximum number of rows on the page.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, MAX_PAGE_ROWS)
    }

    /// Parses a list of dimensions, separated by commas, and returns them in the order of [`UsageDimension::ALL`].
    ///
    /// # Errors
    /// [`UsageQueryError::Dimension`].
    pub fn parse_dimensions(list: &str) -> Result<Vec<UsageDimension>, UsageQueryError> {
        let mut dimensions = Vec::new();
        for name in list.split(',').filter(|name| !name.is_empty()) {
            let dimension = name.parse()?;
            if dimensions.contains(&dimension) {
                return Err(UsageQueryError::Dimension);
            }
            dimensions.push(dimension);
        }
        // One order for all lists bounds the number of different queries.
        dimensions.sort();
        Ok(dimensions)
    }
}

/// Position in the rows of a query: the values of the row before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCursor(pub Vec<String>);

impl UsageCursor {
    /// Parses a page's cursor of a query with this number of dimensions.
    ///
    /// # Errors
    /// [`UsageQueryError::Cursor`].
    pub fn parse(text: &str, dimensions: usize) -> Result<Self, UsageQueryError> {
        let values: Option<Vec<String>> =
            hex::decode(text).ok().and_then(|json| serde_json::from_slice(&json).ok());
        let values = values.filter(|values| {
            values.len() == dimensions && dimensions > 0 && !values.iter().any(|value| value.contains('\0'))
        });
        values.map(Self).ok_or(UsageQueryError::Cursor)
    }
}

impl std::fmt::Display for UsageCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(serde_json::to_vec(&self.0).map_err(|_| std::fmt::Error)?))
    }
}

/// Sums of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// Values of the dimensions, in the query's order.
    pub group: Vec<String>,
    /// The sums.
    pub sums: UsageSums,
}

/// Page of a query's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsagePage {
    /// Rows, in the order of their groups.
    pub rows: Vec<UsageRow>,
    /// Cursor of the next page; absent on the last page.
    pub next_cursor: Option<String>,
}

impl UsagePage {
    /// Builds a page from rows in order. A store reads one more than `limit` to detect whether another page follows.
    pub fn from_overfetch(mut rows: Vec<UsageRow>, limit: usize) -> Self {
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| has_more);
        let next_cursor = last.map(|row| UsageCursor(row.group.clone()).to_string());
        Self { rows, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_listed_once() {
        use UsageDimension::{Agent, Day};
        for (list, expected) in [
            ("", Some(vec![])),
            ("agent,day", Some(vec![Day, Agent])),
            ("agent", Some(vec![Agent])),
            ("day,day", None),
            ("Day", None),
            ("company", None),
        ] {
            assert_eq!(UsageQuery::parse_dimensions(list).ok(), expected, "{list}");
        }
    }

    #[test]
    fn cursors_are_read_back() {
        let cursor = UsageCursor(vec!["2026-01-01".into(), "ü,\"x\"".into()]);
        assert_eq!(UsageCursor::parse(&cursor.to_string(), 2), Ok(cursor.clone()));
        for (text, dimensions) in [
            (cursor.to_string(), 1),
            (String::new(), 0),
            ("zz".into(), 2),
            (hex::encode("{}"), 2),
            (UsageCursor(vec!["\0".into()]).to_string(), 1),
        ] {
            assert_eq!(UsageCursor::parse(&text, dimensions), Err(UsageQueryError::Cursor), "{text}");
        }
    }
}
