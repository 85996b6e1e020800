-- Runs: directories of logs whose curves are kept. The points themselves lie in files beside the
-- database; here stands whose they are, where they come from and how far reading has come.

CREATE TABLE runs (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL REFERENCES users (id),
    name       TEXT NOT NULL,
    -- Absolute.
    directory  TEXT NOT NULL,
    -- The workload that writes there, whose agent reads while it lives; NULL: nobody known. Its
    -- row may be forgotten before this one.
    session_id TEXT,
    -- The job whose attempts write there; then `session_id` is its latest, and name and visibility are the job's.
    job_id     TEXT UNIQUE,
    visibility TEXT NOT NULL,
    -- With visibility `group`. The group may be gone: then nobody but the owner sees it.
    group_id   TEXT,
    -- Everything has been read, and nobody writes any more.
    complete   BOOLEAN NOT NULL,
    points     BIGINT NOT NULL,
    curves     BIGINT NOT NULL,
    -- The end of the last look that came to its end, and when points came last.
    read_at    BIGINT,
    grown_at   BIGINT,
    -- When a directory that nobody's agent follows is looked at next.
    look_at    BIGINT NOT NULL,
    -- A sentence: why the last look failed.
    error      TEXT,
    -- What was passed over.
    skipped    TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX runs_owner ON runs (owner, id);
CREATE INDEX runs_group ON runs (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX runs_unfinished ON runs (id) WHERE session_id IS NOT NULL AND NOT complete;
CREATE INDEX runs_look ON runs (look_at) WHERE session_id IS NULL;
