//! Statements that read and write the contexts of user messages.

use agent_core::ids::RunId;
use agent_platform::conversation::{MAX_CONTEXT_PAGE_BYTES, SentContext, ThreadKey, TurnContext};
use agent_platform::records::StoreError;

use super::tables::{ConversationTables, TableError};
use crate::conversation_row::{context_body, parse_context};
use crate::postgres::session::contains_nul;

const PUT_CONTEXT: &str = "
    INSERT INTO turn_contexts (thread, seq, turn, body)
    SELECT thread, seq, $3, $4 FROM nodes
    WHERE thread = $1 AND id = $2 AND role = 'user' AND status <> 'deleted'
    ON CONFLICT (thread, seq, turn) DO NOTHING RETURNING seq";

/// Selects contexts, the newest messages' first, until they have a number of bytes.
const SELECT_CONTEXTS: &str = "
    SELECT nodes.id, page.turn, page.body FROM (
        SELECT thread, seq, turn, body,
               sum(octet_length(body)) OVER (ORDER BY seq DESC, turn DESC) - octet_length(body) AS bytes_before
        FROM turn_contexts WHERE thread = $1 AND seq >= $4 AND turn = ANY ($2::text[])
    ) AS page JOIN nodes ON nodes.thread = page.thread AND nodes.seq = page.seq
    WHERE page.bytes_before < $3 ORDER BY page.seq DESC, page.turn DESC";

const COPY_CONTEXTS: &str = "
    INSERT INTO turn_contexts (thread, seq, turn, body)
    SELECT $3, path.number - 1, contexts.turn, contexts.body
    FROM unnest($2::int8[]) WITH ORDINALITY AS path (seq, number)
    JOIN turn_contexts AS contexts ON contexts.thread = $1 AND contexts.seq = path.seq";

impl ConversationTables {
    /// Stores the context of a user message in a turn, unless it has one. Returns true if it is stored now.
    pub(super) async fn put_context(
        &self,
        thread: i64,
        turn: &RunId,
        sent: &SentContext,
    ) -> Result<bool, TableError> {
        let Some(body) = context_body(sent)?.filter(|_| !contains_nul(sent.node.as_str())) else {
            return Ok(false);
        };
        let rows = self.select(PUT_CONTEXT, &[&thread, &sent.node.as_str(), &turn.as_str(), &body]).await?;
        Ok(!rows.is_empty())
    }

    /// Returns the contexts of messages from a position on in these turns, those of the newest messages first.
    pub(super) async fn contexts(
        &self,
        key: &ThreadKey,
        from: u32,
        turns: &[RunId],
    ) -> Result<Vec<TurnContext>, TableError> {
        let Some((n, _)) = self.thread(key).await? else { return Ok(Vec::new()) };
        let turns: Vec<&str> =
            turns.iter().map(|turn| turn.as_str()).filter(|turn| !contains_nul(turn)).collect();
        let max_bytes = i64::try_from(MAX_CONTEXT_PAGE_BYTES).unwrap_or(i64::MAX);
        let rows = self.select(SELECT_CONTEXTS, &[&n, &turns, &max_bytes, &i64::from(from)]).await?;
        let contexts: Result<_, StoreError> =
            rows.iter().map(|row| parse_context(row.get(0), row.get(1), row.get(2))).collect();
        Ok(contexts?)
    }

    /// Copies the contexts of a path, whose nodes are at these positions, into its fork.
    pub(super) async fn copy_contexts(&self, from: i64, seqs: &[u32], into: i64) -> Result<(), TableError> {
        let seqs: Vec<i64> = seqs.iter().map(|seq| i64::from(*seq)).collect();
        self.select(COPY_CONTEXTS, &[&from, &seqs, &into]).await?;
        Ok(())
    }
}
