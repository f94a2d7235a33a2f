-- Schema version 4: an index of the jobs that are not final.
CREATE SCHEMA scheduler;
CREATE TABLE scheduler.schema_version (version int4 NOT NULL);
INSERT INTO scheduler.schema_version (version) VALUES (4);
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
    -- Times in `body` and `progress` are numbers; readers accept the text of older rows. Every row has `progress`: it
    -- ignores the fields of `body` that are not its own, and the reverse.
    UPDATE scheduler.jobs SET progress = body WHERE progress IS NULL;
    -- The agent of the payload, for filters. It is read by an expression, since a cast of a damaged row to JSON would
    -- fail; a quotation mark within a string is escaped in `body`. NULL in a damaged row.
    ALTER TABLE scheduler.jobs ADD COLUMN agent text COLLATE "C";
    UPDATE scheduler.jobs SET agent = regexp_replace(
        substring(body FROM '"agentId":"((?:[^"\\]|\\.)*)"'), '\\(.)', '\1', 'g');
    -- Counts and lists a user's jobs that are not final, past none that is.
    CREATE INDEX jobs_open ON scheduler.jobs (company, user_id, id) WHERE ended_ms IS NULL;
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000001', 'acme', 'ada', 'createTodo', NULL, 'k', 'scheduled', 1767229200000, NULL, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo","arguments":{"title":"Water \"the\" basil \\ ü"},"todoListId":"l1","timezone":"Europe/Berlin"},"schedule":{"executeAt":"2026-01-01T01:00:00.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"idempotency":{"key":"k","fingerprint":"00ff"},"created":1767225600000000000}', '{"place":{"occurrence":1,"scheduledFor":1767229200000000000}}', 'gardener');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000002', 'acme', 'bob', NULL, 'daily', NULL, 'retryable', 1767230610000, NULL, true, '{"payload":{"kind":"agent","userId":"bob","companyId":"acme","agentId":"the \"other\"","assignmentId":"daily","message":"Good morning"},"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"}},"misfire":"skip","overlap":"queue","maxAttempts":3,"created":1767225601000000000}', '{"phase":{"is":"retryable"},"place":{"occurrence":7,"scheduledFor":1767230600000000000},"due":1767230610000000000,"attempt":2,"fence":19,"begun":{"at":1767230601000000000,"next":1767317000000000000},"attempts":[{"occurrence":7,"attempt":1,"ended":1767230602000000000,"durationMs":12,"status":503,"error":"HTTP 503"},{"occurrence":7,"attempt":2,"ended":1767230603000000000}],"deadLetters":[{"occurrence":5,"scheduledFor":1767228600000000000,"at":1767228609000000000,"error":"HTTP 422"}]}', 'the "other"');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000003', 'other', 'ada', 'recordMetric', NULL, NULL, 'running', 1767225692000, NULL, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"other","agentId":"gardener","toolId":"recordMetric"},"schedule":{"everyMs":60000,"anchor":"2026-01-01T00:00:02.000Z"},"misfire":"runAll","overlap":"skip","maxAttempts":1,"created":1767225602000000000}', '{"phase":{"is":"running","lease":1767225692000000000},"place":{"occurrence":1,"scheduledFor":1767225662000000000},"attempt":1,"fence":1,"begun":{"at":1767225662000000000,"next":1767225722000000000},"then":{"why":"moved","place":{"occurrence":2,"scheduledFor":1767226000000000000}}}', 'gardener');
INSERT INTO scheduler.jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000004', 'acme', 'ada', 'createTodo', NULL, NULL, 'cancelled', NULL, 1767225609000, false, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo"},"schedule":{"executeAt":"2026-01-01T00:00:10.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"created":1767225603000000000}', '{"phase":{"is":"cancelled","at":1767225609000000000},"paused":true,"place":{"occurrence":1,"scheduledFor":1767225610000000000}}', 'gardener');
