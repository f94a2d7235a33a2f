-- Schema version 2, as its first programs wrote it: `progress` beside `body`, times as text.
CREATE SCHEMA scheduler;
CREATE TABLE scheduler.schema_version (version int4 NOT NULL);
INSERT INTO scheduler.schema_version (version) VALUES (2);
    CREATE TABLE scheduler.jobs (
        id text COLLATE "C" NOT NULL PRIMARY KEY,
        company text COLLATE "C" NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        tool text COLLATE "C",
        assignment text COLLATE "C",
        idempotency text COLLATE "C",
        state text COLLATE "C" NOT NULL,
        -- When it is to be looked at, and since when it is final: never both.
        wake_ms bigint,
        ended_ms bigint,
        -- Whether something of it failed for good and can be run again.
        dead boolean NOT NULL,
        body text NOT NULL
    ) WITH (
        -- Every step leaves a dead row behind, and the earliest ones lie where the next claim looks first.
        autovacuum_vacuum_scale_factor = 0.01,
        autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05
    );
    -- Claims, in their order.
    CREATE INDEX jobs_wake ON scheduler.jobs (wake_ms, id) INCLUDE (company, state) WHERE wake_ms IS NOT NULL;
    -- Claims where some companies have their share.
    CREATE INDEX jobs_turn ON scheduler.jobs (company, wake_ms, id) INCLUDE (state) WHERE wake_ms IS NOT NULL;
    -- With jobs_wake and the one after it, all states are counted without a look at the jobs.
    CREATE INDEX jobs_ended ON scheduler.jobs (ended_ms) INCLUDE (state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON scheduler.jobs (id) WHERE state = 'paused';
    -- Lists, in the order of ids.
    CREATE INDEX jobs_company ON scheduler.jobs (company, id);
    CREATE INDEX jobs_user ON scheduler.jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON scheduler.jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON scheduler.jobs (company, id) WHERE dead;
    CREATE UNIQUE INDEX jobs_idempotency ON scheduler.jobs (company, idempotency) WHERE idempotency IS NOT NULL;
    -- What has become of a job. In rows without it, the body has that too.
    ALTER TABLE scheduler.jobs ADD COLUMN progress text;
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000001', 'acme', 'ada', 'createTodo', NULL, 'k', 'scheduled', 1767229200000, NULL, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo","arguments":{"title":"Water \"the\" basil \\ ü"},"todoListId":"l1","timezone":"Europe/Berlin"},"schedule":{"executeAt":"2026-01-01T01:00:00.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"idempotency":{"key":"k","fingerprint":"00ff"},"created":"2026-01-01T00:00:00Z"}', '{"place":{"occurrence":1,"scheduledFor":"2026-01-01T01:00:00Z"}}');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000002', 'acme', 'bob', NULL, 'daily', NULL, 'retryable', 1767230610000, NULL, true, '{"payload":{"kind":"agent","userId":"bob","companyId":"acme","agentId":"the \"other\"","assignmentId":"daily","message":"Good morning"},"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"}},"misfire":"skip","overlap":"queue","maxAttempts":3,"created":"2026-01-01T00:00:01Z"}', '{"phase":{"is":"retryable"},"place":{"occurrence":7,"scheduledFor":"2026-01-01T01:23:20Z"},"due":"2026-01-01T01:23:30Z","attempt":2,"fence":19,"begun":{"at":"2026-01-01T01:23:21Z","next":"2026-01-02T01:23:20Z"},"attempts":[{"occurrence":7,"attempt":1,"ended":"2026-01-01T01:23:22Z","durationMs":12,"status":503,"error":"HTTP 503"},{"occurrence":7,"attempt":2,"ended":"2026-01-01T01:23:23Z"}],"deadLetters":[{"occurrence":5,"scheduledFor":"2026-01-01T00:50:00Z","at":"2026-01-01T00:50:09Z","error":"HTTP 422"}]}');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000003', 'other', 'ada', 'recordMetric', NULL, NULL, 'running', 1767225692000, NULL, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"other","agentId":"gardener","toolId":"recordMetric"},"schedule":{"everyMs":60000,"anchor":"2026-01-01T00:00:02.000Z"},"misfire":"runAll","overlap":"skip","maxAttempts":1,"created":"2026-01-01T00:00:02Z"}', '{"phase":{"is":"running","lease":"2026-01-01T00:01:32Z"},"place":{"occurrence":1,"scheduledFor":"2026-01-01T00:01:02Z"},"attempt":1,"fence":1,"begun":{"at":"2026-01-01T00:01:02Z","next":"2026-01-01T00:02:02Z"},"then":{"why":"moved","place":{"occurrence":2,"scheduledFor":"2026-01-01T00:06:40Z"}}}');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress) VALUES
    ('019b7000-0000-7000-8000-000000000004', 'acme', 'ada', 'createTodo', NULL, NULL, 'cancelled', NULL, 1767225609000, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo"},"schedule":{"executeAt":"2026-01-01T00:00:10.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"created":"2026-01-01T00:00:03Z"}', '{"phase":{"is":"cancelled","at":"2026-01-01T00:00:09Z"},"paused":true,"place":{"occurrence":1,"scheduledFor":"2026-01-01T00:00:10Z"}}');
