-- Schema version 2: the whole job in `body`, times as text.
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
    CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY,
        company TEXT NOT NULL,
        user_id TEXT NOT NULL,
        tool TEXT,
        assignment TEXT,
        idempotency TEXT,
        state TEXT NOT NULL,
        -- When it is to be looked at, and since when it is final: never both.
        wake_ms INTEGER,
        ended_ms INTEGER,
        -- Whether something of it failed for good and can be run again.
        dead INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    -- Claims are chosen within this index, past the jobs of those who have their share, and nothing but what is
    -- taken is read.
    CREATE INDEX jobs_wake ON jobs (wake_ms, company, state) WHERE wake_ms IS NOT NULL;
    -- With the one before and the one after it, all states are counted without a look at the jobs.
    CREATE INDEX jobs_ended ON jobs (ended_ms, state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON jobs (id) WHERE state = 'paused';
    -- Lists, in the order of ids.
    CREATE INDEX jobs_company ON jobs (company, id);
    CREATE INDEX jobs_user ON jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON jobs (company, id) WHERE dead = 1;
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (company, idempotency) WHERE idempotency IS NOT NULL;
PRAGMA application_id = 1097297524;
PRAGMA user_version = 2;
INSERT INTO records (company, collection, id, version, updated_ms, value) VALUES
    ('company', 'things', 'a', 7, 1767225600000, '{"kept":"Grüße"}');
UPDATE counter SET last_version = 7;
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body) VALUES
    ('019b7000-0000-7000-8000-000000000001', 'acme', 'ada', 'createTodo', NULL, 'k', 'scheduled', 1767229200000, NULL, 0, '{"id":"019b7000-0000-7000-8000-000000000001","payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo","arguments":{"title":"Water \"the\" basil \\ ü"},"todoListId":"l1","timezone":"Europe/Berlin"},"schedule":{"executeAt":"2026-01-01T01:00:00.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"idempotency":{"key":"k","fingerprint":"00ff"},"created":"2026-01-01T00:00:00Z","phase":{"is":"scheduled"},"attempt":0,"fence":0,"due":"2026-01-01T01:00:00Z","place":{"occurrence":1,"scheduledFor":"2026-01-01T01:00:00Z"}}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body) VALUES
    ('019b7000-0000-7000-8000-000000000002', 'acme', 'bob', NULL, 'daily', NULL, 'retryable', 1767230610000, NULL, 1, '{"id":"019b7000-0000-7000-8000-000000000002","payload":{"kind":"agent","userId":"bob","companyId":"acme","agentId":"the \"other\"","assignmentId":"daily","message":"Good morning"},"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"}},"misfire":"skip","overlap":"queue","maxAttempts":3,"created":"2026-01-01T00:00:01Z","phase":{"is":"retryable"},"attempt":2,"fence":19,"place":{"occurrence":7,"scheduledFor":"2026-01-01T01:23:20Z"},"due":"2026-01-01T01:23:30Z","begun":{"at":"2026-01-01T01:23:21Z","next":"2026-01-02T01:23:20Z"},"attempts":[{"occurrence":7,"attempt":1,"ended":"2026-01-01T01:23:22Z","durationMs":12,"status":503,"error":"HTTP 503"},{"occurrence":7,"attempt":2,"ended":"2026-01-01T01:23:23Z"}],"deadLetters":[{"occurrence":5,"scheduledFor":"2026-01-01T00:50:00Z","at":"2026-01-01T00:50:09Z","error":"HTTP 422"}]}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body) VALUES
    ('019b7000-0000-7000-8000-000000000003', 'other', 'ada', 'recordMetric', NULL, NULL, 'running', 1767225692000, NULL, 0, '{"id":"019b7000-0000-7000-8000-000000000003","payload":{"kind":"tool","userId":"ada","companyId":"other","agentId":"gardener","toolId":"recordMetric"},"schedule":{"everyMs":60000,"anchor":"2026-01-01T00:00:02.000Z"},"misfire":"runAll","overlap":"skip","maxAttempts":1,"created":"2026-01-01T00:00:02Z","phase":{"is":"running","lease":"2026-01-01T00:01:32Z"},"attempt":1,"fence":1,"due":"2026-01-01T00:01:02Z","place":{"occurrence":1,"scheduledFor":"2026-01-01T00:01:02Z"},"begun":{"at":"2026-01-01T00:01:02Z","next":"2026-01-01T00:02:02Z"},"then":{"why":"moved","place":{"occurrence":2,"scheduledFor":"2026-01-01T00:06:40Z"}}}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body) VALUES
    ('019b7000-0000-7000-8000-000000000004', 'acme', 'ada', 'createTodo', NULL, NULL, 'cancelled', NULL, 1767225609000, 0, '{"id":"019b7000-0000-7000-8000-000000000004","payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo"},"schedule":{"executeAt":"2026-01-01T00:00:10.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"created":"2026-01-01T00:00:03Z","phase":{"is":"cancelled","at":"2026-01-01T00:00:09Z"},"attempt":0,"fence":0,"due":"2026-01-01T00:00:10Z","paused":true,"place":{"occurrence":1,"scheduledFor":"2026-01-01T00:00:10Z"}}');
