//! Statements that read and write threads and nodes.

use std::rc::Rc;

use agent_platform::conversation::commit::{KnownNodes, NodePosition, referenced_ids};
use agent_platform::conversation::{
    ActiveThread, NewNode, NodeContent, NodeId, NodeLink, StoredNode, Thread, ThreadCursor, ThreadFilter,
    ThreadKey, ThreadOwner, ThreadPath,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::conversation_row::{
    ContentColumns, DELETE_BATCH_NODES, LinkColumns, NodeRow, RowError, ThreadRow, active_thread,
    parse_thread, to_seq,
};
use crate::sqlite::error::WriteError;

pub(super) type TableError = RowError<WriteError>;

impl From<rusqlite::Error> for TableError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Columns of a node, in the order of [`node_row`].
pub(in crate::sqlite) const NODE_COLUMNS: &str =
    "seq, parent, id, client_id, turn, role, status, sha, run, origin, at_ms, thread, body";

/// Access to the tables of conversations within one transaction.
pub(super) struct ConversationTables<'c>(pub(super) &'c Connection);

impl ConversationTables<'_> {
    /// Returns a thread with its number.
    pub(super) fn thread(&self, key: &ThreadKey) -> Result<Option<(i64, Thread)>, TableError> {
        let mut statement = self
            .0
            .prepare_cached("SELECT n, body FROM threads WHERE company = ?1 AND owner = ?2 AND id = ?3")?;
        let mut rows = statement.query(params![&*key.company, &*key.owner, &*key.id])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some((row.get(0)?, parse_thread(&key.id, text(row, 1)?)?)))
    }

    /// Returns the number of a thread.
    pub(super) fn thread_number(&self, key: &ThreadKey) -> Result<Option<i64>, TableError> {
        let mut statement =
            self.0.prepare_cached("SELECT n FROM threads WHERE company = ?1 AND owner = ?2 AND id = ?3")?;
        let number = statement.query_row(params![&*key.company, &*key.owner, &*key.id], |row| row.get(0));
        Ok(number.optional()?)
    }

    pub(super) fn thread_count(&self, owner: &ThreadOwner) -> Result<u64, TableError> {
        let mut statement =
            self.0.prepare_cached("SELECT threads FROM thread_counts WHERE company = ?1 AND owner = ?2")?;
        let count = statement.query_row(params![&*owner.company, &*owner.owner], |row| row.get(0));
        Ok(count.optional()?.unwrap_or_default())
    }

    /// Returns the identity of a thread's nodes.
    pub(super) fn links(&self, thread: i64) -> Result<Vec<NodeLink>, TableError> {
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT {} FROM nodes WHERE thread = ?1 ORDER BY seq",
            LinkColumns::NAMES
        ))?;
        let mut rows = statement.query([thread])?;
        let mut links = Vec::new();
        while let Some(row) = rows.next()? {
            let link = link_columns(row)?.parse(links.last())?;
            links.push(link);
        }
        Ok(links)
    }

    /// Returns a thread with the identity of its nodes, and the contents of those from the root to its head.
    pub(super) fn path(&self, key: &ThreadKey) -> Result<Option<ThreadPath>, TableError> {
        let Some((n, thread)) = self.thread(key)? else { return Ok(None) };
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT {}, body FROM nodes WHERE thread = ?1 ORDER BY seq DESC",
            LinkColumns::NAMES
        ))?;
        let mut rows = statement.query([n])?;
        let count = thread.message_count as usize;
        let (mut links, mut contents) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut head, mut parent): (_, Option<i64>) = (thread.head.as_ref(), None);
        while let Some(row) = rows.next()? {
            let columns = link_columns(row)?;
            // Parents are stored before their children, so they come after them here.
            let is_head = head.take_if(|head| head.as_str() == columns.id).is_some();
            if is_head || parent == Some(columns.seq) {
                parent = columns.parent;
                let LinkColumns { seq, id, role, status, origin, .. } = columns;
                let body = text(row, 9)?;
                contents.push(ContentColumns { seq, id, role, status, origin, body }.parse()?);
            }
            let link = columns.parse(links.last())?;
            links.push(link);
        }
        links.reverse();
        contents.reverse();
        contents.shrink_to_fit();
        Ok(Some(ThreadPath { thread, links, contents }))
    }

    /// Returns the contents of the nodes at these positions, which ascend.
    pub(super) fn contents(&self, thread: i64, seqs: &[u32]) -> Result<Vec<NodeContent>, TableError> {
        let (Some(first), Some(last)) = (seqs.first(), seqs.last()) else { return Ok(Vec::new()) };
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT {} FROM nodes WHERE thread = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq",
            ContentColumns::NAMES
        ))?;
        let mut rows = statement.query(params![thread, first, last])?;
        let (mut contents, mut wanted) = (Vec::with_capacity(seqs.len()), seqs.iter().peekable());
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            while wanted.next_if(|wanted| i64::from(**wanted) < seq).is_some() {}
            // The nodes of other branches are between them.
            if wanted.next_if(|wanted| i64::from(**wanted) == seq).is_none() {
                continue;
            }
            let columns = ContentColumns {
                seq,
                id: text(row, 1)?,
                role: text(row, 2)?,
                status: text(row, 3)?,
                origin: text(row, 4)?,
                body: text(row, 5)?,
            };
            contents.push(columns.parse()?);
        }
        Ok(contents)
    }

    /// Returns the nodes at these positions, which ascend.
    pub(super) fn nodes(&self, thread: i64, seqs: &[u32]) -> Result<Vec<StoredNode>, TableError> {
        let seqs = Rc::new(seqs.iter().map(|seq| Value::from(i64::from(*seq))).collect::<Vec<_>>());
        let mut statement = self.0.prepare_cached(&format!(
            "SELECT {NODE_COLUMNS}, (SELECT id FROM nodes AS above
                                     WHERE above.thread = nodes.thread AND above.seq = nodes.parent),
                    (SELECT body FROM feedback
                     WHERE feedback.thread = nodes.thread AND feedback.seq = nodes.seq)
             FROM rarray(?2) AS chosen CROSS JOIN nodes ON nodes.thread = ?1 AND nodes.seq = chosen.value"
        ))?;
        let mut rows = statement.query(params![thread, &seqs])?;
        let mut nodes = Vec::with_capacity(seqs.len());
        while let Some(row) = rows.next()? {
            nodes.push(node(row)?);
        }
        Ok(nodes)
    }

    /// Returns the position of a node.
    pub(super) fn seq(&self, thread: i64, id: &NodeId) -> Result<Option<u32>, TableError> {
        let mut statement = self.0.prepare_cached("SELECT seq FROM nodes WHERE thread = ?1 AND id = ?2")?;
        let seq: Option<i64> =
            statement.query_row(params![thread, id.as_str()], |row| row.get(0)).optional()?;
        Ok(seq.map(to_seq))
    }

    /// Returns the positions of a thread's user messages that are not deleted, at most `limit`.
    pub(super) fn user_seqs(&self, thread: i64, limit: u32) -> Result<Vec<u32>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT seq FROM nodes WHERE thread = ?1 AND role = 'user' AND status <> 'deleted' ORDER BY seq LIMIT ?2",
        )?;
        let seqs = statement.query_map(params![thread, limit], |row| row.get::<_, i64>(0))?;
        Ok(seqs.map(|seq| seq.map(to_seq)).collect::<Result<_, _>>()?)
    }

    /// Returns the positions of the stored nodes that new nodes and a new run's parent refer to. Roots are counted if one is
    /// added.
    pub(super) fn known(
        &self,
        thread: i64,
        nodes: &[NewNode],
        parent: Option<&NodeId>,
    ) -> Result<KnownNodes, TableError> {
        let mut known = KnownNodes::default();
        // Children come after their parent.
        let mut find = self.0.prepare_cached(
            "SELECT seq, (SELECT count(*) FROM nodes AS child
                          WHERE child.thread = nodes.thread AND child.seq > nodes.seq AND child.parent = nodes.seq)
             FROM nodes WHERE thread = ?1 AND id = ?2",
        )?;
        for id in referenced_ids(nodes, parent) {
            let position =
                |row: &Row<'_>| Ok(NodePosition { seq: to_seq(row.get(0)?), children: row.get(1)? });
            if let Some(position) = find.query_row(params![thread, id.as_str()], position).optional()? {
                known.positions.insert(id.clone(), position);
            }
        }
        if nodes.iter().all(|node| node.parent_id.is_some()) {
            return Ok(known);
        }
        let mut roots =
            self.0.prepare_cached("SELECT count(*) FROM nodes WHERE thread = ?1 AND parent IS NULL")?;
        known.roots = roots.query_row([thread], |row| row.get(0))?;
        Ok(known)
    }

    /// Returns at most `limit` threads after a position.
    pub(super) fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        after: &ThreadCursor,
        limit: usize,
    ) -> Result<Vec<Thread>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT id, body FROM threads
             WHERE company = ?1 AND owner = ?2 AND archived = ?3 AND (active_ms, id) < (?4, ?5)
               AND (?6 IS NULL OR agent = ?6) AND (?7 IS NULL OR status = ?7) AND (?8 IS NULL OR origin = ?8)
             ORDER BY active_ms DESC, id DESC LIMIT ?9",
        )?;
        let mut threads = Vec::new();
        for archived in [false, true] {
            if filter.archived.is_some_and(|wanted| wanted != archived) {
                continue;
            }
            let mut rows = statement.query(params![
                &*owner.company,
                &*owner.owner,
                archived,
                after.active_ms,
                &*after.id,
                filter.agent.as_deref(),
                filter.status.map(|status| status.as_str()),
                filter.origin.map(|origin| origin.as_str()),
                limit,
            ])?;
            while let Some(row) = rows.next()? {
                threads.push(parse_thread(text(row, 0)?, text(row, 1)?)?);
            }
        }
        Ok(threads)
    }

    /// Returns the ids of at most `limit` threads of an owner.
    pub(super) fn thread_ids(
        &self,
        owner: &ThreadOwner,
        agent: Option<&str>,
        before_ms: Option<i64>,
        limit: usize,
    ) -> Result<Vec<String>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT id FROM threads WHERE company = ?1 AND owner = ?2 AND (?3 IS NULL OR agent = ?3)
               AND (?4 IS NULL OR active_ms < ?4) LIMIT ?5",
        )?;
        let values = params![&*owner.company, &*owner.owner, agent, before_ms, limit];
        let ids = statement.query_map(values, |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Returns at most `limit` threads with greater numbers than `after`, in the order of their numbers.
    pub(super) fn scan_threads(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, ActiveThread)>, TableError> {
        let mut statement = self.0.prepare_cached(
            "SELECT n, company, owner, agent, active_ms FROM threads WHERE n > ?1 ORDER BY n LIMIT ?2",
        )?;
        let mut rows = statement.query(params![after, limit])?;
        let mut threads = Vec::new();
        while let Some(row) = rows.next()? {
            threads
                .push((row.get(0)?, active_thread(text(row, 1)?, text(row, 2)?, text(row, 3)?, row.get(4)?)));
        }
        Ok(threads)
    }

    /// Writes a thread, which gets a number if it has none, and returns the number.
    pub(super) fn put_thread(
        &self,
        n: Option<i64>,
        key: &ThreadKey,
        thread: &Thread,
    ) -> Result<i64, TableError> {
        let row = ThreadRow::new(n.unwrap_or_default(), key, thread)?;
        if let Some(n) = n {
            self.0
                .prepare_cached(
                    "UPDATE threads SET agent = ?2, archived = ?3, status = ?4, origin = ?5, active_ms = ?6, body = ?7
                     WHERE n = ?1",
                )?
                .execute(params![n, row.agent, row.archived, row.status, row.origin, row.active_ms, row.body])?;
            return Ok(n);
        }
        self.0
            .prepare_cached(
                "INSERT INTO threads (company, owner, id, agent, archived, status, origin, active_ms, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                row.company,
                row.owner,
                row.id,
                row.agent,
                row.archived,
                row.status,
                row.origin,
                row.active_ms,
                row.body
            ])?;
        Ok(self.0.last_insert_rowid())
    }

    pub(super) fn insert_nodes(&self, thread: i64, nodes: &[StoredNode]) -> Result<(), TableError> {
        let mut insert = self.0.prepare_cached(&insert_node_sql())?;
        for node in nodes {
            insert_node(&mut insert, &NodeRow::new(thread, node)?)?;
        }
        Ok(())
    }

    /// Writes the content and state of a node.
    pub(super) fn update_node(&self, thread: i64, node: &StoredNode) -> Result<(), TableError> {
        let row = NodeRow::new(thread, node)?;
        let mut update = self.0.prepare_cached(
            "UPDATE nodes SET status = ?3, sha = ?4, body = ?5 WHERE thread = ?1 AND seq = ?2",
        )?;
        update.execute(params![thread, row.seq, row.status, row.sha, row.body])?;
        Ok(())
    }

    /// Deletes a thread's newest nodes, at most [`DELETE_BATCH_NODES`], and returns their number.
    pub(super) fn delete_nodes(&self, thread: i64) -> Result<usize, TableError> {
        let mut delete = self.0.prepare_cached(
            "DELETE FROM nodes WHERE thread = ?1 AND seq IN
                 (SELECT seq FROM nodes WHERE thread = ?1 ORDER BY seq DESC LIMIT ?2)",
        )?;
        Ok(delete.execute(params![thread, DELETE_BATCH_NODES])?)
    }

    /// Deletes a thread without nodes and logs, and its runs.
    pub(super) fn delete_thread(&self, thread: i64) -> Result<(), TableError> {
        let mut signals = self.0.prepare_cached(
            "DELETE FROM signals WHERE (process, run) IN (SELECT process, n FROM runs WHERE thread = ?1)",
        )?;
        signals.execute([thread])?;
        self.0.prepare_cached("DELETE FROM runs WHERE thread = ?1")?.execute([thread])?;
        self.0.prepare_cached("DELETE FROM threads WHERE n = ?1")?.execute([thread])?;
        Ok(())
    }
}

/// Returns the statement that inserts a node.
pub(in crate::sqlite) fn insert_node_sql() -> String {
    format!(
        "INSERT INTO nodes ({NODE_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
    )
}

pub(in crate::sqlite) fn insert_node(
    insert: &mut rusqlite::Statement<'_>,
    row: &NodeRow,
) -> rusqlite::Result<()> {
    insert.execute(params![
        row.seq,
        row.parent,
        row.id,
        row.client_id,
        row.turn,
        row.role,
        row.status,
        row.sha,
        row.run,
        row.origin,
        row.at_ms,
        row.thread,
        row.body
    ])?;
    Ok(())
}

/// Reads a row of [`NODE_COLUMNS`].
pub(in crate::sqlite) fn node_row(row: &Row<'_>) -> rusqlite::Result<NodeRow> {
    Ok(NodeRow {
        thread: row.get(11)?,
        seq: row.get(0)?,
        parent: row.get(1)?,
        id: row.get(2)?,
        client_id: row.get(3)?,
        turn: row.get(4)?,
        role: row.get(5)?,
        status: row.get(6)?,
        sha: row.get(7)?,
        run: row.get(8)?,
        origin: row.get(9)?,
        at_ms: row.get(10)?,
        body: row.get(12)?,
    })
}

fn node(row: &Row<'_>) -> Result<StoredNode, TableError> {
    let feedback: Option<String> = row.get(14)?;
    Ok(node_row(row)?.into_node(row.get(13)?, feedback.as_deref())?)
}

/// Reads the columns [`LinkColumns::NAMES`].
fn link_columns<'r>(row: &'r Row<'_>) -> Result<LinkColumns<'r>, TableError> {
    Ok(LinkColumns {
        seq: row.get(0)?,
        parent: row.get(1)?,
        id: text(row, 2)?,
        client_id: optional_text(row, 3)?,
        turn: text(row, 4)?,
        role: text(row, 5)?,
        status: text(row, 6)?,
        sha: text(row, 7)?,
        origin: text(row, 8)?,
    })
}

fn optional_text<'r>(row: &'r Row<'_>, column: usize) -> Result<Option<&'r str>, TableError> {
    Ok(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
}

pub(super) fn text<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r str, TableError> {
    Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
}
