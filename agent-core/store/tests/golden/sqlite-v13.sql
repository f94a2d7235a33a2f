-- Schema version 13: an index of the jobs that are not final.
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
    -- Times in `body` and `progress` are numbers; readers accept the text of older rows. Every row has `progress`: it
    -- ignores the fields of `body` that are not its own, and the reverse.
    UPDATE jobs SET progress = body WHERE progress IS NULL;
    -- The agent of the payload, for filters. NULL in a damaged row.
    ALTER TABLE jobs ADD COLUMN agent TEXT;
    UPDATE jobs SET agent = CASE WHEN json_valid(body) THEN json_extract(body, '$.payload.agentId') END;
    -- Threads, with all of them in `body`; the other columns are for queries.
    CREATE TABLE threads (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        archived INTEGER NOT NULL,
        status TEXT NOT NULL,
        origin TEXT NOT NULL,
        active_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, owner, id)
    ) STRICT;
    CREATE INDEX threads_recent ON threads (company, owner, archived, active_ms, id);
    -- Messages. `seq` is the order in which they were stored: children come after their parent.
    CREATE TABLE nodes (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        parent INTEGER,
        id TEXT NOT NULL,
        client_id TEXT,
        turn TEXT NOT NULL,
        role TEXT NOT NULL,
        status TEXT NOT NULL,
        -- Of role and content, for the comparison with what clients send again.
        sha TEXT NOT NULL,
        run TEXT,
        origin TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) STRICT;
    CREATE UNIQUE INDEX nodes_id ON nodes (thread, id);
    -- Counts children.
    CREATE INDEX nodes_parent ON nodes (thread, parent);
    -- Runs, with all of them in `body`, in the order in which they began.
    CREATE TABLE runs (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        id TEXT NOT NULL,
        thread INTEGER NOT NULL,
        agent TEXT NOT NULL,
        state TEXT NOT NULL,
        kind TEXT NOT NULL,
        process TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, owner, id)
    ) STRICT;
    CREATE INDEX runs_thread ON runs (thread, n);
    CREATE INDEX runs_owner ON runs (company, owner, n);
    CREATE INDEX runs_live ON runs (process) WHERE state IN ('queued', 'running');
    -- Leases of the processes that have runs.
    CREATE TABLE processes (
        id TEXT NOT NULL PRIMARY KEY,
        lease_ms INTEGER NOT NULL
    ) STRICT;
    -- Number among the owner's runs in the order in which they began. Cursors of lists have it, and not `n`, which
    -- would tell how active others are.
    ALTER TABLE runs ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
    UPDATE runs SET seq = n;
    -- Time until which the log is kept.
    ALTER TABLE runs ADD COLUMN log_until_ms INTEGER;
    DROP INDEX runs_thread;
    DROP INDEX runs_owner;
    CREATE INDEX runs_thread ON runs (thread, seq);
    CREATE INDEX runs_owner ON runs (company, owner, seq);
    CREATE INDEX runs_log ON runs (log_until_ms) WHERE log_until_ms IS NOT NULL;
    -- Logs of runs: packed events by the numbers of the first and the last of them. Chunks are small, and those
    -- of a run are read in order.
    CREATE TABLE run_events (
        run INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (run, first)
    ) STRICT, WITHOUT ROWID;
    -- Signals to the processes of live runs.
    CREATE TABLE signals (
        process TEXT NOT NULL,
        run INTEGER NOT NULL,
        kind TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        PRIMARY KEY (process, run, kind)
    ) STRICT, WITHOUT ROWID;
    -- Number of threads of each owner that has any. Counting them for each new thread would take time in proportion.
    CREATE TABLE thread_counts (
        company TEXT NOT NULL,
        owner TEXT NOT NULL,
        threads INTEGER NOT NULL,
        PRIMARY KEY (company, owner)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO thread_counts SELECT company, owner, count(*) FROM threads GROUP BY company, owner;
    CREATE TRIGGER thread_added AFTER INSERT ON threads BEGIN
        INSERT INTO thread_counts VALUES (new.company, new.owner, 1)
            ON CONFLICT (company, owner) DO UPDATE SET threads = threads + 1;
    END;
    CREATE TRIGGER thread_deleted AFTER DELETE ON threads BEGIN
        UPDATE thread_counts SET threads = threads - 1 WHERE company = old.company AND owner = old.owner;
        DELETE FROM thread_counts WHERE company = old.company AND owner = old.owner AND threads < 1;
    END;
    -- Ratings of messages, with all of them in `body`.
    CREATE TABLE feedback (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        company TEXT NOT NULL,
        agent TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        id TEXT NOT NULL,
        shared INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq)
    ) STRICT;
    CREATE INDEX feedback_agent ON feedback (company, agent, at_ms, id);
    -- Also for a process of the version before, which does not know of feedback.
    CREATE TRIGGER thread_feedback_deleted AFTER DELETE ON threads BEGIN
        DELETE FROM feedback WHERE thread = old.n;
    END;
    CREATE TRIGGER node_feedback_deleted AFTER UPDATE OF status ON nodes WHEN new.status = 'deleted' BEGIN
        DELETE FROM feedback WHERE thread = old.thread AND seq = old.seq;
    END;
    -- Threads of visitors in the order of the list of the agent's owner.
    CREATE INDEX threads_visitors ON threads (company, agent, active_ms, owner, id) WHERE owner GLOB 'widget:*';
    -- Calls of models and tools, with all of them in `body`; the other columns are for queries.
    CREATE TABLE usage_calls (
        n INTEGER PRIMARY KEY,
        company TEXT NOT NULL,
        id TEXT NOT NULL,
        run TEXT NOT NULL,
        ended_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (company, id)
    ) STRICT;
    CREATE INDEX usage_calls_run ON usage_calls (company, run, n);
    CREATE INDEX usage_calls_ended ON usage_calls (ended_ms);
    -- Sums of the calls by day.
    CREATE TABLE usage_days (
        company TEXT NOT NULL,
        day TEXT NOT NULL,
        agent TEXT NOT NULL,
        user_id TEXT NOT NULL,
        caller TEXT NOT NULL,
        provider TEXT NOT NULL,
        model TEXT NOT NULL,
        operation TEXT NOT NULL,
        runs INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        input INTEGER NOT NULL,
        cached_input INTEGER NOT NULL,
        cache_write INTEGER NOT NULL,
        output INTEGER NOT NULL,
        reasoning INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        cost INTEGER NOT NULL,
        estimated_cost INTEGER NOT NULL,
        unpriced_calls INTEGER NOT NULL,
        PRIMARY KEY (company, day, agent, user_id, caller, provider, model, operation)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_days_user ON usage_days (company, user_id, day);
    CREATE INDEX usage_days_agent ON usage_days (company, agent, day);
    -- Contexts with which user messages were sent, by the turns that answer them.
    CREATE TABLE turn_contexts (
        thread INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        turn TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (thread, seq, turn)
    ) STRICT;
    -- Also for a process of the version before, which does not know of contexts.
    CREATE TRIGGER node_contexts_deleted AFTER DELETE ON nodes BEGIN
        DELETE FROM turn_contexts WHERE thread = old.thread AND seq = old.seq;
    END;
    CREATE TRIGGER node_contexts_erased AFTER UPDATE OF status ON nodes WHEN new.status = 'deleted' BEGIN
        DELETE FROM turn_contexts WHERE thread = old.thread AND seq = old.seq;
    END;
    -- Time from which a run that waits needs no more decisions. A process of the version before sets none: such a run
    -- counts as due, which costs no more than in that version.
    ALTER TABLE runs ADD COLUMN due_ms INTEGER;
    CREATE INDEX runs_due ON runs (coalesce(due_ms, 0), n) WHERE state = 'waiting';
    -- Children come after their parent, so that they are counted from there on by the primary key: mostly below the newest
    -- message. Each commit of messages changed a page of the index.
    DROP INDEX nodes_parent;
    -- Counts and lists a user's jobs that are not final, past none that is. `ended_ms` is NULL in each entry; a count
    -- need not read the row to find that out.
    CREATE INDEX jobs_open ON jobs (company, user_id, id, ended_ms) WHERE ended_ms IS NULL;
PRAGMA application_id = 1097297524;
PRAGMA user_version = 13;
INSERT INTO records (company, collection, id, version, updated_ms, value) VALUES
    ('company', 'things', 'a', 7, 1767225600000, '{"kept":"Grüße"}');
UPDATE counter SET last_version = 7;
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000001', 'acme', 'ada', 'createTodo', NULL, 'k', 'scheduled', 1767229200000, NULL, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo","arguments":{"title":"Water \"the\" basil \\ ü"},"todoListId":"l1","timezone":"Europe/Berlin"},"schedule":{"executeAt":"2026-01-01T01:00:00.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"idempotency":{"key":"k","fingerprint":"00ff"},"created":1767225600000000000}', '{"place":{"occurrence":1,"scheduledFor":1767229200000000000}}', 'gardener');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000002', 'acme', 'bob', NULL, 'daily', NULL, 'retryable', 1767230610000, NULL, 1, '{"payload":{"kind":"agent","userId":"bob","companyId":"acme","agentId":"the \"other\"","assignmentId":"daily","message":"Good morning"},"schedule":{"cron":"30 2 * * *","timezone":"Europe/Berlin","dst":{"gap":"skip","fold":"both"}},"misfire":"skip","overlap":"queue","maxAttempts":3,"created":1767225601000000000}', '{"phase":{"is":"retryable"},"place":{"occurrence":7,"scheduledFor":1767230600000000000},"due":1767230610000000000,"attempt":2,"fence":19,"begun":{"at":1767230601000000000,"next":1767317000000000000},"attempts":[{"occurrence":7,"attempt":1,"ended":1767230602000000000,"durationMs":12,"status":503,"error":"HTTP 503"},{"occurrence":7,"attempt":2,"ended":1767230603000000000}],"deadLetters":[{"occurrence":5,"scheduledFor":1767228600000000000,"at":1767228609000000000,"error":"HTTP 422"}]}', 'the "other"');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000003', 'other', 'ada', 'recordMetric', NULL, NULL, 'running', 1767225692000, NULL, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"other","agentId":"gardener","toolId":"recordMetric"},"schedule":{"everyMs":60000,"anchor":"2026-01-01T00:00:02.000Z"},"misfire":"runAll","overlap":"skip","maxAttempts":1,"created":1767225602000000000}', '{"phase":{"is":"running","lease":1767225692000000000},"place":{"occurrence":1,"scheduledFor":1767225662000000000},"attempt":1,"fence":1,"begun":{"at":1767225662000000000,"next":1767225722000000000},"then":{"why":"moved","place":{"occurrence":2,"scheduledFor":1767226000000000000}}}', 'gardener');
INSERT INTO jobs (id, company, user_id, tool, assignment, idempotency, state, wake_ms, ended_ms, dead, body, progress, agent) VALUES
    ('019b7000-0000-7000-8000-000000000004', 'acme', 'ada', 'createTodo', NULL, NULL, 'cancelled', NULL, 1767225609000, 0, '{"payload":{"kind":"tool","userId":"ada","companyId":"acme","agentId":"gardener","toolId":"createTodo"},"schedule":{"executeAt":"2026-01-01T00:00:10.000Z"},"misfire":"runOnce","overlap":"skip","maxAttempts":12,"created":1767225603000000000}', '{"phase":{"is":"cancelled","at":1767225609000000000},"paused":true,"place":{"occurrence":1,"scheduledFor":1767225610000000000}}', 'gardener');
INSERT INTO threads (n, company, owner, id, agent, archived, status, origin, active_ms, body) VALUES
    (1, 'acme', 'ada "ü"', 't/1', 'gardener', 0, 'idle', 'chat', 1767225600002, '{"id":"t/1","agentId":"gardener","title":"Water the \"basil\"?","titleFrom":"message","status":"idle","head":"n6","archived":false,"origin":"chat","messageCount":6,"metadata":{},"createdAt":"2026-01-01T00:00:00.001Z","lastActivityAt":"2026-01-01T00:00:00.002Z","version":5}'),
    (2, 'acme', 'ada "ü"', 't2', 'gardener', 1, 'running', 'chat', 1767225600001, '{"id":"t2","agentId":"gardener","title":"Hello","titleFrom":"message","status":"running","activeRunId":"run 3","head":"n1","archived":true,"origin":"chat","messageCount":1,"metadata":{},"createdAt":"2026-01-01T00:00:00.001Z","lastActivityAt":"2026-01-01T00:00:00.001Z","version":3}');
INSERT INTO nodes (seq, parent, id, client_id, turn, role, status, sha, run, origin, at_ms, thread, body) VALUES
    (0, NULL, 'n1', 'client 1', 'run 1', 'user', 'complete', '860248147b8279a1f5c9befa732fcea9', 'run 1', 'user', 1767225600001, 1, '{"id":"n1","role":"user","content":"Water the \"basil\"?\nü \u0000"}'),
    (1, 0, 'n2', NULL, 'run 1', 'assistant', 'complete', 'ccc674b099f5cb82cfd9120c46b3101a', 'run 1', 'run', 1767225600002, 1, '{"id":"n2","role":"assistant","content":"I look","toolCalls":[{"id":"call","type":"function","function":{"name":"look","arguments":"{}"}}]}'),
    (2, 1, 'n3', NULL, 'run 1', 'tool', 'complete', 'bcf6c7eeaac02474a111ebfa274e7db2', 'run 1', 'run', 1767225600002, 1, '{"id":"n3","role":"tool","content":"dry","toolCallId":"call"}'),
    (3, 2, 'n4', NULL, 'run 1', 'assistant', 'complete', 'bc1c35bf5b1322946bef5edc986857ab', 'run 1', 'run', 1767225600002, 1, '{"id":"n4","role":"assistant","content":"Yes"}'),
    (4, 0, 'n5', NULL, 'run 2', 'user', 'complete', 'cc2f95f7051e75bdf67fa0ea41284992', 'run 2', 'user', 1767225600001, 1, '{"id":"n5","role":"user","content":"Why?"}'),
    (5, 4, 'n6', NULL, 'run 2', 'assistant', 'incomplete', 'a897b38323a6819109e82bd0b791310a', 'run 2', 'run', 1767225600002, 1, '{"id":"n6","role":"assistant","content":"Be"}'),
    (0, NULL, 'n1', NULL, 'run 3', 'user', 'complete', 'c9df06a9791dca7ab76847ad00da2984', 'run 3', 'user', 1767225600001, 2, '{"id":"n1","role":"user","content":"Hello"}');
INSERT INTO runs (n, company, owner, id, thread, agent, state, kind, process, body, seq, log_until_ms) VALUES
    (1, 'acme', 'ada "ü"', 'run 1', 1, 'gardener', 'completed', 'chat', 'process', '{"id":"run 1","threadId":"t/1","turnId":"run 1","agentId":"gardener","state":"completed","trigger":{"kind":"chat"},"parentId":"n1","nodeIds":["n1","n2","n3","n4"],"onDisconnect":"continue","graceMs":5000,"attached":0,"events":{"count":0,"complete":false},"backend":"openai","requestSha256":"00ff","usage":[],"createdAt":"2026-01-01T00:00:00.001Z","startedAt":"2026-01-01T00:00:00.001Z","endedAt":"2026-01-01T00:00:00.002Z"}', 1, NULL),
    (2, 'acme', 'ada "ü"', 'run 2', 1, 'gardener', 'failed', 'chat', 'process', '{"id":"run 2","threadId":"t/1","turnId":"run 2","agentId":"gardener","state":"failed","trigger":{"kind":"chat"},"parentId":"n5","nodeIds":["n5","n6"],"onDisconnect":"continue","graceMs":5000,"attached":0,"events":{"count":5,"complete":true,"until":"2026-01-01T00:01:00.000Z"},"backend":"openai","requestSha256":"00ff","usage":[],"error":{"code":"UPSTREAM","message":"no"},"createdAt":"2026-01-01T00:00:00.001Z","startedAt":"2026-01-01T00:00:00.001Z","endedAt":"2026-01-01T00:00:00.002Z"}', 2, 1767225660000),
    (3, 'acme', 'ada "ü"', 'run 3', 2, 'gardener', 'running', 'chat', 'process', '{"id":"run 3","threadId":"t2","turnId":"run 3","agentId":"gardener","state":"running","trigger":{"kind":"chat"},"parentId":"n1","nodeIds":["n1"],"onDisconnect":"continue","graceMs":5000,"attached":0,"events":{"count":0,"complete":false},"backend":"openai","usage":[],"createdAt":"2026-01-01T00:00:00.001Z","startedAt":"2026-01-01T00:00:00.001Z"}', 3, NULL);
INSERT INTO processes (id, lease_ms) VALUES ('process', 1767225610000);
INSERT INTO run_events (run, first, last, body) VALUES
    (2, 0, 2, x'013d7b2274797065223a22544558545f4d4553534147455f434f4e54454e54222c226d6573736167654964223a226d222c2264656c7461223a22426520227d020b226361757365220ac3bc20020100'),
    (2, 3, 4, x'013e7b2274797065223a22544558545f4d4553534147455f434f4e54454e54222c226d6573736167654964223a226d222c2264656c7461223a2274686520227d0203656e64'),
    (3, 0, 1, x'013e7b2274797065223a22544558545f4d4553534147455f434f4e54454e54222c226d6573736167654964223a226d222c2264656c7461223a2248656c20227d02026c6f');
INSERT INTO feedback (thread, seq, company, agent, at_ms, id, shared, body) VALUES
    (1, 3, 'acme', 'gardener', 1767225600004, 'feedback 1', 1, '{"id":"feedback 1","rating":"down","tags":["wet \"ü\""],"comment":"Too much\n\u0000","share":true,"createdAt":"2026-01-01T00:00:00.004Z"}'),
    (2, 0, 'acme', 'gardener', 1767225600005, 'feedback 2', 0, '{"id":"feedback 2","rating":"up","share":false,"createdAt":"2026-01-01T00:00:00.005Z"}');
INSERT INTO turn_contexts (thread, seq, turn, body) VALUES
    (1, 0, 'run 1', '"It is \"noon\".\n\u0000ü"');
INSERT INTO usage_calls (n, company, id, run, ended_ms, body) VALUES
    (1, 'acme', 'entry 1', 'run 1', 1767225600001, '{"id":"entry 1","companyId":"acme","runId":"run 1","agentId":"gardener","userId":"ada \"ü\"","caller":"session","round":1,"attempt":2,"operation":"chat","provider":"openai","model":"gpt-5","inputTokens":10,"cachedInputTokens":4,"cacheWriteTokens":3,"outputTokens":2,"reasoningTokens":1,"toolCalls":0,"cost":12345,"priceAsOf":"2026-01-01","estimated":true,"outcome":"cancelled","endedAt":"2026-01-01T00:00:00.001Z"}'),
    (2, 'acme', 'entry 2', 'run 1', 1767225600002, '{"id":"entry 2","companyId":"acme","runId":"run 1","agentId":"gardener","userId":"ada \"ü\"","caller":"session","round":0,"attempt":1,"operation":"tools","provider":"","model":"","inputTokens":0,"cachedInputTokens":0,"cacheWriteTokens":0,"outputTokens":0,"reasoningTokens":0,"toolCalls":3,"cost":0,"estimated":false,"outcome":"ok","endedAt":"2026-01-01T00:00:00.002Z"}'),
    (3, 'acme', 'entry 3', 'run 2', 1767312000000, '{"id":"entry 3","companyId":"acme","runId":"run 2","agentId":"gardener","userId":"widget:t","caller":"widget","round":1,"attempt":1,"operation":"chat","provider":"openai","model":"unknown","inputTokens":1,"cachedInputTokens":0,"cacheWriteTokens":0,"outputTokens":1,"reasoningTokens":0,"toolCalls":0,"cost":null,"estimated":false,"outcome":"ok","endedAt":"2026-01-02T00:00:00Z"}');
INSERT INTO usage_days VALUES
    ('acme', '2026-01-01', 'gardener', 'ada "ü"', 'session', '', '', 'tools', 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0),
    ('acme', '2026-01-01', 'gardener', 'ada "ü"', 'session', 'openai', 'gpt-5', 'chat', 1, 1, 10, 4, 3, 2, 1, 0, 12345, 12345, 0),
    ('acme', '2026-01-02', 'gardener', 'widget:t', 'widget', 'openai', 'unknown', 'chat', 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1);
