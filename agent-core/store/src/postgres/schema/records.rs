//! Tables of records.

/// Migration steps, one per schema version; the first creates version 1. A released step must not be changed.
///
/// Text columns use the collation `C`: lists are ordered by bytes. Values are stored as `text`, because `jsonb` rejects
/// NUL and normalizes numbers.
pub(super) const STEPS: &[&str] = &["
    CREATE TABLE records (
        company text COLLATE \"C\" NOT NULL,
        collection text COLLATE \"C\" NOT NULL,
        id text COLLATE \"C\" NOT NULL,
        version int8 NOT NULL,
        updated_ms int8 NOT NULL,
        value text NOT NULL,
        PRIMARY KEY (company, collection, id)
    ) WITH (
        -- Room for new versions of rows on their page, which need no new index entries.
        fillfactor = 80,
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05
    );
    -- Versions are of the whole store, so that a record that is created again repeats none. They are taken while the
    -- record is locked, so that they grow with each write of it. A cache of numbers per session would break that.
    CREATE SEQUENCE record_version MAXVALUE 9007199254740992 CACHE 1;
    -- Keys of the records that a transaction changed, for the caches of other processes.
    CREATE TABLE change (
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        -- Process that wrote it, which needs no notice.
        origin text NOT NULL,
        company text COLLATE \"C\" NOT NULL,
        -- NULL stands for all records of all collections.
        collections text[],
        ids text[]
    ) WITH (
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_insert_scale_factor = 0.05
    );
    CREATE INDEX change_xid ON change (xid);
"];
