//! Statements that read and write feedback and the lists of an agent's owner.

use agent_core::ids::{AgentId, CompanyId};
use agent_platform::conversation::{
    AgentFeedback, ConversationError, Feedback, FeedbackCursor, NodeId, Thread, ThreadKey,
    VisitorThreadCursor, commit,
};
use rusqlite::params;

use super::rows::{ConversationTables, TableError, text};
use crate::conversation_row::{FeedbackRow, parse_agent_feedback, parse_thread};

/// Sets or removes the feedback on a node.
pub(super) fn set_feedback(
    tables: &ConversationTables<'_>,
    key: &ThreadKey,
    id: &NodeId,
    feedback: Option<Feedback>,
) -> Result<(), TableError> {
    let (n, thread) = tables.thread(key)?.ok_or(ConversationError::ThreadNotFound)?;
    let missing = || ConversationError::NodeNotFound(id.to_string());
    let seq = tables.seq(n, id)?.ok_or_else(missing)?;
    let node = tables.nodes(n, &[seq])?.pop().ok_or_else(missing)?;
    let Some((thread, node)) = commit::rate_node(&key.thread_owner(), thread, node, feedback)? else {
        return Ok(());
    };
    tables.put_thread(Some(n), key, &thread)?;
    match &node.feedback {
        Some(feedback) => {
            let row = FeedbackRow::new(n, seq, &key.company, &thread.agent_id, feedback)?;
            let mut insert = tables.0.prepare_cached(INSERT_FEEDBACK)?;
            insert_feedback(&mut insert, &row)?;
        }
        None => {
            let mut delete =
                tables.0.prepare_cached("DELETE FROM feedback WHERE thread = ?1 AND seq = ?2")?;
            delete.execute(params![n, seq])?;
        }
    }
    Ok(())
}

/// Inserts feedback on a node, or replaces the one of the same node.
pub(in crate::sqlite) const INSERT_FEEDBACK: &str = "
    INSERT OR REPLACE INTO feedback (thread, seq, company, agent, at_ms, id, shared, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Runs [`INSERT_FEEDBACK`].
pub(in crate::sqlite) fn insert_feedback(
    insert: &mut rusqlite::Statement<'_>,
    row: &FeedbackRow,
) -> rusqlite::Result<()> {
    let FeedbackRow { thread, seq, company, agent, at_ms, id, shared, body } = row;
    insert.execute(params![thread, seq, company, agent, at_ms, id, shared, body])?;
    Ok(())
}

impl ConversationTables<'_> {
    /// Returns at most `limit` feedbacks on an agent's messages after a position, with the messages that are shared.
    pub(super) fn agent_feedback(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        after: &FeedbackCursor,
        limit: usize,
    ) -> Result<Vec<AgentFeedback>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT feedback.body, nodes.body FROM feedback
             LEFT JOIN nodes ON feedback.shared AND nodes.thread = feedback.thread AND nodes.seq = feedback.seq
             WHERE company = ?1 AND agent = ?2 AND (feedback.at_ms, feedback.id) < (?3, ?4)
             ORDER BY feedback.at_ms DESC, feedback.id DESC LIMIT ?5",
        )?;
        let mut rows = statement.query(params![&**company, &**agent, after.at_ms, after.id, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let message: Option<String> = row.get(1)?;
            found.push(parse_agent_feedback(text(row, 0)?, message.as_deref())?);
        }
        Ok(found)
    }

    /// Returns at most `limit` threads of visitors with an agent after a position.
    pub(super) fn visitor_threads(
        &self,
        company: &CompanyId,
        agent: &AgentId,
        after: &VisitorThreadCursor,
        limit: usize,
    ) -> Result<Vec<Thread>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT owner, id, body FROM threads
             WHERE company = ?1 AND agent = ?2 AND owner GLOB 'widget:*' AND (active_ms, owner, id) < (?3, ?4, ?5)
             ORDER BY active_ms DESC, owner DESC, id DESC LIMIT ?6",
        )?;
        let parameters = params![&**company, &**agent, after.active_ms, &*after.owner, &*after.id, limit];
        let mut rows = statement.query(parameters)?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let thread = parse_thread(text(row, 1)?, text(row, 2)?)?;
            found.push(Thread { owner: Some(text(row, 0)?.into()), ..thread });
        }
        Ok(found)
    }
}
