-- Models: what a training job trains. Snapshots and measures lie in the job's directory of logs.
CREATE TABLE models (
    id          TEXT PRIMARY KEY,
    owner       TEXT NOT NULL REFERENCES users (id),
    name        TEXT NOT NULL,
    folded_name TEXT NOT NULL,
    kind        TEXT NOT NULL,
    network     TEXT NOT NULL,
    -- The trainer's configuration. Lists do not read it.
    config      TEXT NOT NULL,
    directory   TEXT NOT NULL,
    -- Both may be gone.
    dataset_id  TEXT,
    job_id      TEXT,
    -- What came of an attempt of the job, and of which: 0 before one has ended.
    state       TEXT NOT NULL,
    detail      TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    metric      TEXT NOT NULL,
    best        DOUBLE PRECISION,
    snapshots   BIGINT NOT NULL,
    visibility  TEXT NOT NULL,
    notes       TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    changed_at  BIGINT NOT NULL
);
CREATE INDEX models_owner ON models (owner, id);
CREATE INDEX models_dataset ON models (dataset_id);

-- Pictures that a model was asked about; a job of whoever asked answers.
CREATE TABLE model_tests (
    id         TEXT PRIMARY KEY,
    model_id   TEXT NOT NULL REFERENCES models (id),
    owner      TEXT NOT NULL REFERENCES users (id),
    job_id     TEXT NOT NULL,
    snapshot   TEXT NOT NULL,
    picture    TEXT NOT NULL,
    directory  TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX model_tests_model ON model_tests (model_id, owner, id);
