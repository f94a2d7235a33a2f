//! Statements that read and write the contexts of user messages.

use std::collections::{HashMap, HashSet};

use agent_core::ids::RunId;
use agent_platform::conversation::{MAX_CONTEXT_PAGE_BYTES, SentContext, TurnContext};
use rusqlite::params;

use super::rows::{ConversationTables, TableError, text};
use crate::conversation_row::{context_body, parse_context};

impl ConversationTables<'_> {
    /// Stores the context of a user message in a turn, unless it has one. Returns true if it is stored now.
    pub(super) fn put_context(
        &self,
        thread: i64,
        turn: &RunId,
        sent: &SentContext,
    ) -> Result<bool, TableError> {
        let Some(body) = context_body(sent)? else { return Ok(false) };
        let mut insert = self.0.prepare_cached(
            "INSERT OR IGNORE INTO turn_contexts (thread, seq, turn, body)
             SELECT thread, seq, ?3, ?4 FROM nodes
             WHERE thread = ?1 AND id = ?2 AND role = 'user' AND status <> 'deleted'",
        )?;
        Ok(insert.execute(params![thread, sent.node.as_str(), &**turn, body])? > 0)
    }

    /// Returns the contexts of messages from a position on in these turns, those of the newest messages first.
    pub(super) fn contexts(
        &self,
        thread: i64,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT nodes.id, contexts.turn, contexts.body FROM turn_contexts AS contexts
             CROSS JOIN nodes ON nodes.thread = contexts.thread AND nodes.seq = contexts.seq
             WHERE contexts.thread = ?1 AND contexts.seq >= ?2
             ORDER BY contexts.seq DESC, contexts.turn DESC",
        )?;
        let mut rows = statement.query(params![thread, from])?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut turn_ids = HashSet::new();
        while let Some(row) = rows.next()? {
            if bytes >= MAX_CONTEXT_PAGE_BYTES {
                break;
            }
            // Few rows are of other turns. SQLite would copy the turns into a separate table.
            if turn_ids.is_empty() {
                turn_ids.extend(turns.iter().map(RunId::as_str));
            }
            let turn = text(row, 1)?;
            if turn_ids.contains(turn) {
                let context = parse_context(text(row, 0)?, turn, text(row, 2)?)?;
                bytes += context.sent.text.len();
                found.push(context);
            }
        }
        Ok(found)
    }

    /// Copies the contexts of a path, whose nodes are at these positions, into its fork.
    pub(super) fn copy_contexts(&self, from: i64, seqs: &[u32], into: i64) -> Result<(), TableError> {
        let positions: HashMap<i64, i64> = seqs.iter().map(|seq| i64::from(*seq)).zip(0..).collect();
        let mut select = self.0.prepare_cached("SELECT seq FROM turn_contexts WHERE thread = ?1")?;
        let found = select.query_map([from], |row| row.get::<_, i64>(0))?.collect::<Result<Vec<_>, _>>()?;
        let mut copy = self.0.prepare_cached(
            "INSERT OR IGNORE INTO turn_contexts (thread, seq, turn, body)
             SELECT ?3, ?4, turn, body FROM turn_contexts WHERE thread = ?1 AND seq = ?2",
        )?;
        for seq in found {
            if let Some(position) = positions.get(&seq) {
                copy.execute(params![from, seq, into, position])?;
            }
        }
        Ok(())
    }
}
