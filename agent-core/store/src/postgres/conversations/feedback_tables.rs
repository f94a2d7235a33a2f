//! Statements that read and write feedback and the lists of an agent's owner.

use agent_core::ids::{AgentId, CompanyId};
use agent_platform::conversation::{
    AgentFeedback, ConversationError, Feedback, FeedbackCursor, NodeId, Thread, ThreadKey,
    VisitorThreadCursor, commit,
};
use tokio_postgres::Row;

use super::tables::{ConversationTables, TableError};
use crate::conversation_row::{FeedbackRow, parse_agent_feedback, parse_thread};
use crate::postgres::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Session, contains_nul};

/// Inserts rows from arrays, or replaces those of the same nodes.
const INSERT_FEEDBACK: &str = "
    INSERT INTO feedback (thread, seq, company, agent, at_ms, id, shared, body)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::bool[],
                         $8::text[])
    ON CONFLICT (thread, seq) DO UPDATE
    SET at_ms = excluded.at_ms, id = excluded.id, shared = excluded.shared, body = excluded.body";

const SELECT_AGENT_FEEDBACK: &str = "
    SELECT feedback.body, nodes.body FROM feedback
    LEFT JOIN nodes ON feedback.shared AND nodes.thread = feedback.thread AND nodes.seq = feedback.seq
    WHERE feedback.company = $1 AND feedback.agent = $2 AND (feedback.at_ms, feedback.id) < ($3, $4)
    ORDER BY feedback.at_ms DESC, feedback.id DESC LIMIT $5";

const SELECT_VISITOR_THREADS: &str = "
    SELECT owner, id, body FROM threads
    WHERE company = $1 AND agent = $2 AND owner LIKE 'widget:%' AND (active_ms, owner, id) < ($3, $4, $5)
    ORDER BY active_ms DESC, owner DESC, id DESC LIMIT $6";

/// Sets or removes the feedback on a node.
pub(super) async fn set_feedback(
    tables: &ConversationTables,
    key: &ThreadKey,
    id: &NodeId,
    feedback: Option<Feedback>,
) -> Result<(), TableError> {
    let (n, thread) = tables.thread(key).await?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id).await?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq]).await?.pop().ok_or_else(missing)?;
    let Some((thread, node)) = commit::rate_node(&key.thread_owner(), thread, node, feedback)? else {
        return Ok(());
    };
    tables.put_thread(Some(n), key, &thread).await?;
    match &node.feedback {
        Some(feedback) => {
            let row = FeedbackRow::new(n, seq, &key.company, &thread.agent_id, feedback)?;
            insert_feedback(&tables.0, &[row]).await?;
        }
        None => {
            let sql = "DELETE FROM feedback WHERE thread = $1 AND seq = $2 AND company = $3";
            tables.select(sql, &[&n, &i64::from(seq), &key.company.as_str()]).await?;
        }
    }
    Ok(())
}

/// Inserts feedback by one statement.
pub(in crate::postgres) async fn insert_feedback(
    session: &Session,
    rows: &[FeedbackRow],
) -> Result<(), PostgresError> {
    let text = |column: fn(&FeedbackRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
    let number = |column: fn(&FeedbackRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
    let shared: Vec<bool> = rows.iter().map(|row| row.shared).collect();
    let values: [&(dyn Param + Sync); 8] = [
        &number(|row| row.thread),
        &number(|row| row.seq),
        &text(|row| &row.company),
        &text(|row| &row.agent),
        &number(|row| row.at_ms),
        &text(|row| &row.id),
        &shared,
        &text(|row| &row.body),
    ];
    session.query(INSERT_FEEDBACK, &values).await.map(drop)
}

impl ConversationTables {
    /// Returns at most `limit` feedbacks on an agent's messages after a position, with the messages that are shared.
    pub(super) async fn agent_feedback(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        after: &FeedbackCursor,
        limit: i64,
    ) -> Result<Vec<AgentFeedback>, TableError> {
        let (company, agent, id) = (company.as_str(), agent.as_str(), after.id.as_str());
        if [company, agent, id].into_iter().any(contains_nul) {
            return Ok(Vec::new());
        }
        let values: [&(dyn Param + Sync); 5] = [&company, &agent, &after.at_ms, &id, &limit];
        let rows = self.select(SELECT_AGENT_FEEDBACK, &values).await?;
        rows.iter().map(|row| Ok(parse_agent_feedback(row.get(0), row.get(1))?)).collect()
    }

    /// Returns at most `limit` threads of visitors with an agent after a position.
    pub(super) async fn visitor_threads(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        after: &VisitorThreadCursor,
        limit: i64,
    ) -> Result<Vec<Thread>, TableError> {
        let (company, agent) = (company.as_str(), agent.as_str());
        let (owner, id) = (after.owner.as_str(), after.id.as_str());
        if [company, agent, owner, id].into_iter().any(contains_nul) {
            return Ok(Vec::new());
        }
        let values: [&(dyn Param + Sync); 6] = [&company, &agent, &after.active_ms, &owner, &id, &limit];
        let rows = self.select(SELECT_VISITOR_THREADS, &values).await?;
        let thread = |row: &Row| {
            let owner: &str = row.get(0);
            Ok(Thread { owner: Some(owner.into()), ..parse_thread(row.get(1), row.get(2))? })
        };
        rows.iter().map(thread).collect()
    }
}
