-- Schema version 4: as version 3, without the platform's index of agents.
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
    -- What has become of a job. In rows without it, the body has that too.
    ALTER TABLE jobs ADD COLUMN progress TEXT;
PRAGMA application_id = 1097297524;
PRAGMA user_version = 4;
INSERT INTO records (company, collection, id, version, updated_ms, value) VALUES
    ('company', 'things', 'a', 7, 1767225600000, '{"kept":"Grüße"}');
UPDATE counter SET last_version = 7;
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000001', 'acme', 'ada', 'createTodo', NULL, 'k', 'scheduled', 1767229200000, NULL, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo","arguments":{"title":"Water \"the\" basil \\ ü"},"todoListId":"l1","timezone":"Europe/Berlin"},"schedule":{"executeAt":"2026-01-01T01:00:00.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"idempotency":{"key":"k","fingerprint":"00ff"},"created":1767225600000000000}', '{"place":{"occurrence":1,"scheduledFor":1767229200000000000}}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000002', 'acme', 'bob', NULL, 'daily', NULL, 'retryable', 1767230610000, NULL, 1, '{"payload":{"kind":"agent","userId":"bob","companyId":"acme","agentId":"the \"other\"","assignmentId":"daily","message":"Good morning"},"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"}},"misfire":"skip","overlap":"queue","maxAttempts":3,"created":1767225601000000000}', '{"phase":{"is":"retryable"},"place":{"occurrence":7,"scheduledFor":1767230600000000000},"due":1767230610000000000,"attempt":2,"fence":19,"begun":{"at":1767230601000000000,"next":1767317000000000000},"attempts":[{"occurrence":7,"attempt":1,"ended":1767230602000000000,"durationMs":12,"status":503,"error":"HTTP 503"},{"occurrence":7,"attempt":2,"ended":1767230603000000000}],"deadLetters":[{"occurrence":5,"scheduledFor":1767228600000000000,"at":1767228609000000000,"error":"HTTP 422"}]}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000003', 'other', 'ada', 'recordMetric', NULL, NULL, 'running', 1767225692000, NULL, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"other","agentId":"gardener","toolId":"recordMetric"},"schedule":{"everyMs":60000,"anchor":"2026-01-01T00:00:02.000Z"},"misfire":"runAll","overlap":"skip","maxAttempts":1,"created":1767225602000000000}', '{"phase":{"is":"running","lease":1767225692000000000},"place":{"occurrence":1,"scheduledFor":1767225662000000000},"attempt":1,"fence":1,"begun":{"at":1767225662000000000,"next":1767225722000000000},"then":{"why":"moved","place":{"occurrence":2,"scheduledFor":1767226000000000000}}}');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000004', 'acme', 'ada', 'createTodo', NULL, NULL, 'cancelled', NULL, 1767225609000, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo"},"schedule":{"executeAt":"2026-01-01T00:00:10.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"created":1767225603000000000}', '{"phase":{"is":"cancelled","at":1767225609000000000},"paused":true,"place":{"occurrence":1,"scheduledFor":1767225610000000000}}');
