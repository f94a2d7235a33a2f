-- Schema version 1: records only.
    CREATE TABLE records (
        company TEXT NOT NULL,
        collection TEXT NOT NULL,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (company, collection, id)
    ) STRICT;
    -- One row. Versions are of the whole store, so that a record that is made anew repeats none, and every
    -- transaction that changes something raises the number, so that other processes notice.
    CREATE TABLE counter (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        last_version INTEGER NOT NULL
    ) STRICT;
    INSERT INTO counter (id, last_version) VALUES (1, 0);
PRAGMA application_id = 1097297524;
PRAGMA user_version = 1;
INSERT INTO records (company, collection, id, version, updated_ms, value) VALUES
    ('company', 'things', 'a', 7, 1767225600000, '{"kept":"Grüße"}');
UPDATE counter SET last_version = 7;
