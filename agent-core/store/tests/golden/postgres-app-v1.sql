-- Schema version 1 of the application's records.
CREATE SCHEMA app;
CREATE TABLE app.schema_version (version int4 NOT NULL, compatible_from int4);
INSERT INTO app.schema_version (version, compatible_from) VALUES (1, 1);
    CREATE TABLE app.records (
        company text COLLATE "C" NOT NULL,
        collection text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
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
    CREATE SEQUENCE app.record_version MAXVALUE 9007199254740992 CACHE 1;
    -- Keys of the records that a transaction changed, for the caches of other processes.
    CREATE TABLE app.change (
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        -- Process that wrote it, which needs no notice.
        origin text NOT NULL,
        company text COLLATE "C" NOT NULL,
        -- NULL stands for all records of all collections.
        collections text[],
        ids text[]
    ) WITH (
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_insert_scale_factor = 0.05
    );
    CREATE INDEX change_xid ON app.change (xid);
SELECT setval('app.record_version', 41);
INSERT INTO app.records (company, collection, id, version, updated_ms, value) VALUES
    ('', 'tokens', 't', 3, 1767225600001, '{"kind": "widget"}'),
    ('acme', 'documents', 'a/b', 41, 1767225600002, '{"text": "\u0000 ü 1.0", "n": 1e3}'),
    ('acme', 'memories/agent%2F7', 'x', 7, 1767225600003, 'null');
