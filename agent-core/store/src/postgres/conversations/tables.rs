//! Statements that read and write threads and nodes.

use std::collections::HashSet;

use agent_platform::conversation::commit::{KnownNodes, NodePosition};
use agent_platform::conversation::{
    ActiveThread, NodeContent, NodeId, NodeLink, StoredNode, Thread, ThreadCursor, ThreadFilter, ThreadKey,
    ThreadOwner,
};
use agent_platform::records::StoreError;
use tokio_postgres::Row;

use crate::conversation_row::{
    ContentColumns, DELETE_BATCH_NODES, LinkColumns, NodeRow, RowError, ThreadRow, active_thread,
    parse_thread, to_seq,
};
use crate::postgres::PostgresError;
use crate::postgres::param::Param;
use crate::postgres::session::{Session, contains_nul};

pub(super) type TableError = RowError<PostgresError>;

impl From<PostgresError> for TableError {
    fn from(error: PostgresError) -> Self {
        Self::Failed(error)
    }
}

/// Columns of a node, in the order of [`node_row`].
pub(in crate::postgres) const NODE_COLUMNS: &str =
    "seq, parent, id, client_id, turn, role, status, sha, run, origin, at_ms, thread, body";

/// Inserts nodes from arrays of [`NODE_COLUMNS`].
pub(in crate::postgres) const INSERT_NODES: &str = "
    INSERT INTO nodes (seq, parent, id, client_id, turn, role, status, sha, run, origin, at_ms, thread, body)
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                         $8::text[], $9::text[], $10::text[], $11::int8[], $12::int8[], $13::text[])";

/// Counts the children of each node that is found, and the roots in a row without an id. `LIMIT` makes the planner look
/// up each id instead of scanning all.
const SELECT_KNOWN: &str = "
    SELECT found.id, found.seq, (
        SELECT count(*) FROM nodes AS child WHERE child.thread = $1 AND child.parent = found.seq
    ) FROM unnest($2::text[]) AS wanted (id)
    CROSS JOIN LATERAL (SELECT id, seq FROM nodes WHERE thread = $1 AND id = wanted.id LIMIT 1) AS found
    UNION ALL
    SELECT NULL, 0, (SELECT count(*) FROM nodes WHERE thread = $1 AND parent IS NULL)";

const SELECT_THREADS: &str = "
    SELECT id, body FROM threads
    WHERE company = $1 AND owner = $2 AND archived = $3 AND (active_ms, id) < ($4, $5)
      AND ($6::text IS NULL OR agent = $6) AND ($7::text IS NULL OR status = $7)
      AND ($8::text IS NULL OR origin = $8)
    ORDER BY active_ms DESC, id DESC LIMIT $9";

const INSERT_THREAD: &str = "
    INSERT INTO threads (company, owner, id, agent, archived, status, origin, active_ms, body)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING n";

const UPDATE_THREAD: &str = "
    UPDATE threads SET agent = $2, archived = $3, status = $4, origin = $5, active_ms = $6, body = $7 WHERE n = $1";

const DELETE_THREAD_SIGNALS: &str = "
    DELETE FROM signals USING runs
    WHERE runs.thread = $1 AND signals.process = runs.process AND signals.run = runs.n";

/// Access to the tables of conversations over one connection.
pub(super) struct ConversationTables(pub(super) Session);

impl ConversationTables {
    pub(super) async fn select(
        &self,
        sql: &str,
        values: &[&(dyn Param + Sync)],
    ) -> Result<Vec<Row>, TableError> {
        Ok(self.0.query(sql, values).await?)
    }

    /// Returns a thread with its number.
    pub(super) async fn thread(&self, key: &ThreadKey) -> Result<Option<(i64, Thread)>, TableError> {
        let parts = [key.company.as_str(), key.owner.as_str(), key.id.as_str()];
        if parts.into_iter().any(contains_nul) {
            return Ok(None);
        }
        let sql = "SELECT n, body FROM threads WHERE company = $1 AND owner = $2 AND id = $3";
        let rows = self.select(sql, &[&parts[0], &parts[1], &parts[2]]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some((row.get(0), parse_thread(&key.id, row.get(1))?)))
    }

    pub(super) async fn thread_count(&self, owner: &ThreadOwner) -> Result<u64, TableError> {
        let sql = "SELECT threads FROM thread_counts WHERE company = $1 AND owner = $2";
        let rows = self.select(sql, &[&owner.company.as_str(), &owner.owner.as_str()]).await?;
        Ok(rows.first().map_or(0, |row| u64::try_from(row.get::<_, i64>(0)).unwrap_or_default()))
    }

    /// Returns the identity of a thread's nodes.
    pub(super) async fn links(&self, thread: i64) -> Result<Vec<NodeLink>, TableError> {
        let sql = format!("SELECT {} FROM nodes WHERE thread = $1 ORDER BY seq", LinkColumns::NAMES);
        let rows = self.select(&sql, &[&thread]).await?;
        let mut links = Vec::with_capacity(rows.len());
        for row in &rows {
            let link = link_columns(row).parse(links.last())?;
            links.push(link);
        }
        Ok(links)
    }

    /// Returns the contents of the nodes at these positions, which ascend.
    pub(super) async fn contents(&self, thread: i64, seqs: &[u32]) -> Result<Vec<NodeContent>, TableError> {
        let seqs: Vec<i64> = seqs.iter().map(|seq| i64::from(*seq)).collect();
        let sql = format!(
            "SELECT {} FROM nodes WHERE thread = $1 AND seq = ANY ($2::int8[]) ORDER BY seq",
            ContentColumns::NAMES
        );
        let rows = self.select(&sql, &[&thread, &seqs]).await?;
        let contents: Result<_, StoreError> = rows.iter().map(|row| content_columns(row).parse()).collect();
        Ok(contents?)
    }

    /// Returns the nodes at these positions, which ascend.
    pub(super) async fn nodes(&self, thread: i64, seqs: &[u32]) -> Result<Vec<StoredNode>, TableError> {
        let seqs: Vec<i64> = seqs.iter().map(|seq| i64::from(*seq)).collect();
        let sql = format!(
            "SELECT {NODE_COLUMNS}, (SELECT id FROM nodes AS above
                                     WHERE above.thread = nodes.thread AND above.seq = nodes.parent),
                    (SELECT body FROM feedback
                     WHERE feedback.thread = nodes.thread AND feedback.seq = nodes.seq)
             FROM nodes WHERE thread = $1 AND seq = ANY ($2::int8[]) ORDER BY seq"
        );
        let rows = self.select(&sql, &[&thread, &seqs]).await?;
        let nodes: Result<_, StoreError> =
            rows.iter().map(|row| node_row(row).into_node(row.get(13), row.get(14))).collect();
        Ok(nodes?)
    }

    /// Returns the position of a node.
    pub(super) async fn seq(&self, thread: i64, id: &NodeId) -> Result<Option<u32>, TableError> {
        if contains_nul(id.as_str()) {
            return Ok(None);
        }
        let sql = "SELECT seq FROM nodes WHERE thread = $1 AND id = $2";
        let rows = self.select(sql, &[&thread, &id.as_str()]).await?;
        Ok(rows.first().map(|row| to_seq(row.get(0))))
    }

    /// Returns the positions of a thread's user messages that are not deleted, at most `limit`.
    pub(super) async fn user_seqs(&self, thread: i64, limit: i64) -> Result<Vec<u32>, TableError> {
        let sql = "SELECT seq FROM nodes WHERE thread = $1 AND role = 'user' AND status <> 'deleted'
                   ORDER BY seq LIMIT $2";
        let rows = self.select(sql, &[&thread, &limit]).await?;
        Ok(rows.iter().map(|row| to_seq(row.get(0))).collect())
    }

    /// Returns the positions of the nodes with these ids, and the number of roots.
    pub(super) async fn known(&self, thread: i64, ids: &HashSet<&NodeId>) -> Result<KnownNodes, TableError> {
        let ids: Vec<&str> = ids.iter().map(|id| id.as_str()).filter(|id| !contains_nul(id)).collect();
        let mut known = KnownNodes::default();
        for row in self.select(SELECT_KNOWN, &[&thread, &ids]).await? {
            let children = to_seq(row.get(2));
            match row.get::<_, Option<&str>>(0) {
                Some(id) => {
                    known.positions.insert(id.into(), NodePosition { seq: to_seq(row.get(1)), children });
                }
                None => known.roots = children,
            }
        }
        Ok(known)
    }

    /// Returns at most `limit` threads after a position, in the order of each state of `archived`.
    pub(super) async fn threads(
        &self,
        owner: &ThreadOwner,
        filter: &ThreadFilter,
        after: &ThreadCursor,
        limit: i64,
    ) -> Result<Vec<Thread>, TableError> {
        let agent = filter.agent.as_deref();
        if [&*owner.company, &*owner.owner, &*after.id, agent.unwrap_or_default()]
            .into_iter()
            .any(contains_nul)
        {
            return Ok(Vec::new());
        }
        let (status, origin) =
            (filter.status.map(|status| status.as_str()), filter.origin.map(|origin| origin.as_str()));
        let mut threads = Vec::new();
        for archived in [false, true] {
            if filter.archived.is_some_and(|wanted| wanted != archived) {
                continue;
            }
            let values: [&(dyn Param + Sync); 9] = [
                &owner.company.as_str(),
                &owner.owner.as_str(),
                &archived,
                &after.active_ms,
                &after.id.as_str(),
                &agent,
                &status,
                &origin,
                &limit,
            ];
            for row in self.select(SELECT_THREADS, &values).await? {
                threads.push(parse_thread(row.get(0), row.get(1))?);
            }
        }
        Ok(threads)
    }

    /// Returns the ids of at most `limit` threads of an owner.
    pub(super) async fn thread_ids(
        &self,
        owner: &ThreadOwner,
        agent: Option<&str>,
        before_ms: Option<i64>,
        limit: i64,
    ) -> Result<Vec<String>, TableError> {
        if [&*owner.company, &*owner.owner, agent.unwrap_or_default()].into_iter().any(contains_nul) {
            return Ok(Vec::new());
        }
        let sql =
            "SELECT id FROM threads WHERE company = $1 AND owner = $2 AND ($3::text IS NULL OR agent = $3)
                     AND ($4::int8 IS NULL OR active_ms < $4) LIMIT $5";
        let (company, owner) = (owner.company.as_str(), owner.owner.as_str());
        let rows = self.select(sql, &[&company, &owner, &agent, &before_ms, &limit]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Returns at most `limit` threads with greater numbers than `after`, in the order of their numbers.
    pub(super) async fn scan_threads(
        &self,
        after: i64,
        limit: i64,
    ) -> Result<Vec<(i64, ActiveThread)>, TableError> {
        let sql = "SELECT n, company, owner, agent, active_ms FROM threads WHERE n > $1 ORDER BY n LIMIT $2";
        let rows = self.select(sql, &[&after, &limit]).await?;
        let thread = |row: &Row| (row.get(0), active_thread(row.get(1), row.get(2), row.get(3), row.get(4)));
        Ok(rows.iter().map(thread).collect())
    }

    /// Writes a thread, which gets a number if it has none, and returns the number.
    pub(super) async fn put_thread(
        &self,
        n: Option<i64>,
        key: &ThreadKey,
        thread: &Thread,
    ) -> Result<i64, TableError> {
        let row = ThreadRow::new(n.unwrap_or_default(), key, thread)?;
        let changing: [&(dyn Param + Sync); 6] =
            [&row.agent, &row.archived, &row.status, &row.origin, &row.active_ms, &row.body];
        if let Some(n) = n {
            self.select(UPDATE_THREAD, &[&[&n as &(dyn Param + Sync)][..], &changing].concat()).await?;
            return Ok(n);
        }
        let key: [&(dyn Param + Sync); 3] = [&row.company, &row.owner, &row.id];
        let rows = self.select(INSERT_THREAD, &[&key[..], &changing].concat()).await?;
        Ok(rows.first().map_or(0, |row| row.get(0)))
    }

    pub(super) async fn insert_nodes(&self, thread: i64, nodes: &[StoredNode]) -> Result<(), TableError> {
        if nodes.is_empty() {
            return Ok(());
        }
        let rows: Result<Vec<NodeRow>, StoreError> =
            nodes.iter().map(|node| NodeRow::new(thread, node)).collect();
        insert_nodes(&self.0, &rows?).await?;
        Ok(())
    }

    /// Writes the content and state of a node.
    pub(super) async fn update_node(&self, thread: i64, node: &StoredNode) -> Result<(), TableError> {
        let row = NodeRow::new(thread, node)?;
        let sql = "UPDATE nodes SET status = $3, sha = $4, body = $5 WHERE thread = $1 AND seq = $2";
        self.select(sql, &[&thread, &row.seq, &row.status, &row.sha, &row.body]).await?;
        Ok(())
    }

    /// Deletes a thread's newest nodes, at most [`DELETE_BATCH_NODES`], and returns their number.
    pub(super) async fn delete_nodes(&self, thread: i64) -> Result<usize, TableError> {
        let limit = i64::try_from(DELETE_BATCH_NODES).unwrap_or(i64::MAX);
        let sql = "DELETE FROM nodes WHERE thread = $1 AND seq IN
                       (SELECT seq FROM nodes WHERE thread = $1 ORDER BY seq DESC LIMIT $2) RETURNING seq";
        Ok(self.select(sql, &[&thread, &limit]).await?.len())
    }

    /// Deletes a thread without nodes and logs, and its runs.
    pub(super) async fn delete_thread(&self, thread: i64) -> Result<(), TableError> {
        self.select(DELETE_THREAD_SIGNALS, &[&thread]).await?;
        self.select("DELETE FROM runs WHERE thread = $1", &[&thread]).await?;
        self.select("DELETE FROM threads WHERE n = $1", &[&thread]).await?;
        Ok(())
    }
}

/// Inserts nodes by one statement.
pub(in crate::postgres) async fn insert_nodes(
    session: &Session,
    rows: &[NodeRow],
) -> Result<(), PostgresError> {
    let text = |column: fn(&NodeRow) -> &str| -> Vec<&str> { rows.iter().map(column).collect() };
    let option =
        |column: fn(&NodeRow) -> Option<&str>| -> Vec<Option<&str>> { rows.iter().map(column).collect() };
    let number = |column: fn(&NodeRow) -> i64| -> Vec<i64> { rows.iter().map(column).collect() };
    let parents: Vec<Option<i64>> = rows.iter().map(|row| row.parent).collect();
    let values: [&(dyn Param + Sync); 13] = [
        &number(|row| row.seq),
        &parents,
        &text(|row| &row.id),
        &option(|row| row.client_id.as_deref()),
        &text(|row| &row.turn),
        &text(|row| &row.role),
        &text(|row| &row.status),
        &text(|row| &row.sha),
        &option(|row| row.run.as_deref()),
        &text(|row| &row.origin),
        &number(|row| row.at_ms),
        &number(|row| row.thread),
        &text(|row| &row.body),
    ];
    session.query(INSERT_NODES, &values).await.map(drop)
}

fn link_columns(row: &Row) -> LinkColumns<'_> {
    LinkColumns {
        seq: row.get(0),
        parent: row.get(1),
        id: row.get(2),
        client_id: row.get(3),
        turn: row.get(4),
        role: row.get(5),
        status: row.get(6),
        sha: row.get(7),
        origin: row.get(8),
    }
}

fn content_columns(row: &Row) -> ContentColumns<'_> {
    ContentColumns {
        seq: row.get(0),
        id: row.get(1),
        role: row.get(2),
        status: row.get(3),
        origin: row.get(4),
        body: row.get(5),
    }
}

/// Reads a row of [`NODE_COLUMNS`].
pub(in crate::postgres) fn node_row(row: &Row) -> NodeRow {
    NodeRow {
        thread: row.get(11),
        seq: row.get(0),
        parent: row.get(1),
        id: row.get(2),
        client_id: row.get(3),
        turn: row.get(4),
        role: row.get(5),
        status: row.get(6),
        sha: row.get(7),
        run: row.get(8),
        origin: row.get(9),
        at_ms: row.get(10),
        body: row.get(12),
    }
}
