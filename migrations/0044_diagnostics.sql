-- Runs of the GPUs' tests, and GPUs that are kept from new work. A job of their owner measures; what it wrote is judged when it has ended.
CREATE TABLE diagnostics (
    id           TEXT PRIMARY KEY,
    owner        TEXT NOT NULL REFERENCES users (id),
    -- It may be gone.
    job_id       TEXT,
    level        TEXT NOT NULL,
    -- How many GPUs were asked for.
    gpus         BIGINT NOT NULL,
    -- From the top of the file system on; empty before its job is known.
    directory    TEXT NOT NULL,
    state        TEXT NOT NULL,
    detail       TEXT NOT NULL,
    node         TEXT NOT NULL,
    driver       TEXT NOT NULL,
    verdict      TEXT,
    -- UUIDs with commas around each. Empty before the end.
    uuids        TEXT NOT NULL,
    -- JSON: the verdicts with their findings, and what was measured. Lists do not read the latter.
    judgement    TEXT,
    results      TEXT,
    created_at   BIGINT NOT NULL,
    ended_at     BIGINT
);
CREATE INDEX diagnostics_owner ON diagnostics (owner, id);
CREATE INDEX diagnostics_ended ON diagnostics (ended_at);

-- GPUs that operators keep from new work.
CREATE TABLE withheld_gpus (
    uuid        TEXT PRIMARY KEY,
    reason      TEXT NOT NULL,
    withheld_by TEXT NOT NULL,
    withheld_at BIGINT NOT NULL
);
