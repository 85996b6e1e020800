-- When jobs run: tried again when they failed, after others, not before a moment.

-- How often it is still tried again by itself.
ALTER TABLE jobs ADD COLUMN retries_left BIGINT NOT NULL DEFAULT 0;
CREATE INDEX jobs_retry ON jobs (id) WHERE retries_left > 0;

-- A waiting attempt is not decided about before then.
ALTER TABLE sessions ADD COLUMN not_before BIGINT;

-- The jobs whose end a job waits for before its first attempt. They may be deleted meanwhile.
CREATE TABLE job_dependencies (
    job_id   TEXT NOT NULL REFERENCES jobs (id),
    after_id TEXT NOT NULL,
    -- 'ok': it has to succeed; 'any': to end; 'failed': not to succeed.
    needs    TEXT NOT NULL,
    PRIMARY KEY (job_id, after_id)
);
