-- The trash: jobs and runs that their owners deleted, for a day. They are rows of their own tables, so that no list, search or
-- loop finds them; the columns are those of `jobs` and `runs`.

CREATE TABLE trashed_jobs (
    id           TEXT PRIMARY KEY,
    owner        TEXT NOT NULL REFERENCES users (id),
    name         TEXT NOT NULL,
    folded_name  TEXT NOT NULL,
    task         TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    attempt      BIGINT NOT NULL,
    notes        TEXT NOT NULL,
    tags         TEXT NOT NULL,
    starred      BOOLEAN NOT NULL,
    visibility   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    retries_left BIGINT NOT NULL,
    sweep_id     TEXT,
    sweep_index  BIGINT,
    -- JSON: the jobs that it waited for, each with what it needed of it.
    dependencies TEXT NOT NULL,
    deleted_at   BIGINT NOT NULL
);
CREATE INDEX trashed_jobs_owner ON trashed_jobs (owner, deleted_at);
CREATE INDEX trashed_jobs_deleted ON trashed_jobs (deleted_at);
CREATE INDEX trashed_jobs_session ON trashed_jobs (session_id);

CREATE TABLE trashed_runs (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL REFERENCES users (id),
    name       TEXT NOT NULL,
    directory  TEXT NOT NULL,
    session_id TEXT,
    -- The job that it was deleted with.
    job_id     TEXT UNIQUE,
    visibility TEXT NOT NULL,
    group_id   TEXT,
    complete   BOOLEAN NOT NULL,
    points     BIGINT NOT NULL,
    curves     BIGINT NOT NULL,
    read_at    BIGINT,
    grown_at   BIGINT,
    look_at    BIGINT NOT NULL,
    error      TEXT,
    skipped    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT NOT NULL
);
CREATE INDEX trashed_runs_owner ON trashed_runs (owner, deleted_at);
CREATE INDEX trashed_runs_deleted ON trashed_runs (deleted_at);
