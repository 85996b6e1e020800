-- Batch jobs. Each attempt of one is a row of `sessions`, so that quotas, usage, history and the
-- loop that launches and ends know one kind of workload; here stands what outlives an attempt.

CREATE TABLE jobs (
    id          TEXT PRIMARY KEY,
    owner       TEXT NOT NULL REFERENCES users (id),
    name        TEXT NOT NULL,
    -- The name as it is searched, see db/search.rs.
    folded_name TEXT NOT NULL,
    -- What it runs: a command or a script, and variables. Lists do not read it.
    task        TEXT NOT NULL,
    -- Its latest attempt, and which that is: 1, 2, 3 …
    session_id  TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    notes       TEXT NOT NULL,
    tags        TEXT NOT NULL,
    starred     BOOLEAN NOT NULL,
    visibility  TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX jobs_owner ON jobs (owner, id);
CREATE INDEX jobs_session ON jobs (session_id);

-- Null for an interactive session. The job may be gone when its usage is read.
ALTER TABLE sessions ADD COLUMN job_id TEXT;
ALTER TABLE sessions ADD COLUMN attempt BIGINT;
CREATE INDEX sessions_job ON sessions (job_id, attempt) WHERE job_id IS NOT NULL;
