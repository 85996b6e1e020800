-- Datasets of pictures. What they hold lies in their owners' directories; here stands who made
-- which, what was asked for, and what came of it.

CREATE TABLE datasets (
    id              TEXT PRIMARY KEY,
    owner           TEXT NOT NULL REFERENCES users (id),
    name            TEXT NOT NULL,
    -- The name as it is searched, see db/search.rs.
    folded_name     TEXT NOT NULL,
    -- What was asked for, as the builder reads it. Lists do not read it.
    spec            TEXT NOT NULL,
    kind            TEXT NOT NULL,
    source          TEXT NOT NULL,
    directory       TEXT NOT NULL,
    state           TEXT NOT NULL,
    -- Why there is none, where there is none.
    detail          TEXT NOT NULL,
    -- The job that builds it. It may be gone once the dataset is there.
    job_id          TEXT,
    visibility      TEXT NOT NULL,
    notes           TEXT NOT NULL,
    -- What came of it: empty and zero before.
    manifest_sha256 TEXT NOT NULL,
    pictures        BIGINT NOT NULL,
    broken          BIGINT NOT NULL,
    classes         BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    changed_at      BIGINT NOT NULL
);
CREATE INDEX datasets_owner ON datasets (owner, id);
