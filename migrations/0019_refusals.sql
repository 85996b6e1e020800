-- Requests that were refused, the latest of each person: whoever manages limits sees what they
-- keep people from. `id` is the session's, which there is only where it waited first.

CREATE TABLE refusals (
    id               TEXT PRIMARY KEY,
    owner            TEXT NOT NULL REFERENCES users (id),
    app              TEXT NOT NULL,
    name             TEXT NOT NULL,
    gpus             BIGINT NOT NULL,
    gpu_model        TEXT,
    cpus             BIGINT NOT NULL,
    memory_bytes     BIGINT NOT NULL,
    duration_seconds BIGINT NOT NULL,
    -- As in `sessions`: a list of reasons.
    reasons          TEXT NOT NULL,
    refused_at       BIGINT NOT NULL
);
CREATE INDEX refusals_owner ON refusals (owner, refused_at);
-- They are forgotten by age.
CREATE INDEX refusals_age ON refusals (refused_at);
