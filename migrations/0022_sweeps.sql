-- Sweeps: many jobs from one plan, and the pause of the queue of jobs.

-- Many jobs that differ in a number or in some values: an array, a grid, trials. The tasks that are
-- not jobs yet stand in the plan.
CREATE TABLE sweeps (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL REFERENCES users (id),
    name       TEXT NOT NULL,
    -- What each task is like, and in what each differs. Lists do not read it.
    plan       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    tasks      BIGINT NOT NULL,
    -- So many of them, the first ones, have become jobs.
    released   BIGINT NOT NULL,
    -- So many run or wait at once.
    parallel   BIGINT NOT NULL,
    state      TEXT NOT NULL,
    -- A sentence: why it is paused.
    note       TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX sweeps_owner ON sweeps (owner, id);
CREATE INDEX sweeps_open ON sweeps (id) WHERE state <> 'ended';

ALTER TABLE jobs ADD COLUMN sweep_id TEXT;
ALTER TABLE jobs ADD COLUMN sweep_index BIGINT;
CREATE UNIQUE INDEX jobs_sweep ON jobs (sweep_id, sweep_index) WHERE sweep_id IS NOT NULL;

-- Whose waiting jobs go on waiting: one person's, or with an empty id everybody's.
CREATE TABLE queue_pauses (
    user_id TEXT PRIMARY KEY,
    by_name TEXT NOT NULL,
    note    TEXT NOT NULL,
    at      BIGINT NOT NULL
);
