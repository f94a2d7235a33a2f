//! Tables of jobs.

/// Migration steps, one per schema version; the first creates version 1. A released step must not be changed.
///
/// Text columns use the collation `C`: cursors require byte order, and comparison is fastest in it. The job
/// is stored as `text`, because `jsonb` rejects NUL and normalizes numbers.
pub(super) const STEPS: &[&str] = &["
    CREATE TABLE jobs (
        id text COLLATE \"C\" NOT NULL PRIMARY KEY,
        company text COLLATE \"C\" NOT NULL,
        user_id text COLLATE \"C\" NOT NULL,
        tool text COLLATE \"C\",
        assignment text COLLATE \"C\",
        idempotency text COLLATE \"C\",
        state text COLLATE \"C\" NOT NULL,
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
    CREATE INDEX jobs_wake ON jobs (wake_ms, id) INCLUDE (company, state) WHERE wake_ms IS NOT NULL;
    -- Claims where some companies have their share.
    CREATE INDEX jobs_turn ON jobs (company, wake_ms, id) INCLUDE (state) WHERE wake_ms IS NOT NULL;
    -- With jobs_wake and the one after it, all states are counted without a look at the jobs.
    CREATE INDEX jobs_ended ON jobs (ended_ms) INCLUDE (state) WHERE ended_ms IS NOT NULL;
    CREATE INDEX jobs_paused ON jobs (id) WHERE state = 'paused';
    -- Lists, in the order of ids.
    CREATE INDEX jobs_company ON jobs (company, id);
    CREATE INDEX jobs_user ON jobs (company, user_id, id);
    CREATE INDEX jobs_assignment ON jobs (company, assignment, id) WHERE assignment IS NOT NULL;
    CREATE INDEX jobs_dead ON jobs (company, id) WHERE dead;
    CREATE UNIQUE INDEX jobs_idempotency ON jobs (company, idempotency) WHERE idempotency IS NOT NULL;
", "
    -- What has become of a job. In rows without it, the body has that too.
    ALTER TABLE jobs ADD COLUMN progress text;
", "
    -- Times in `body` and `progress` are numbers; readers accept the text of older rows. Every row has `progress`: it
    -- ignores the fields of `body` that are not its own, and the reverse.
    UPDATE jobs SET progress = body WHERE progress IS NULL;
    -- The agent of the payload, for filters. It is read by an expression, since a cast of a damaged row to JSON would
    -- fail; a quotation mark within a string is escaped in `body`. NULL in a damaged row.
    ALTER TABLE jobs ADD COLUMN agent text COLLATE \"C\";
    UPDATE jobs SET agent = regexp_replace(
        substring(body FROM '\"agentId\":\"((?:[^\"\\\\]|\\\\.)*)\"'), '\\\\(.)', '\\1', 'g');
", "
    -- Counts and lists a user's jobs that are not final, past none that is.
    CREATE INDEX jobs_open ON jobs (company, user_id, id) WHERE ended_ms IS NULL;
"];
