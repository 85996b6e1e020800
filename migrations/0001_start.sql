-- Every statement here runs on SQLite and on PostgreSQL. Columns are TEXT, BIGINT, BOOLEAN
-- or DOUBLE PRECISION only; times are milliseconds since 1970; ids are UUIDv7 text; documents are JSON text.

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE users (
    id            TEXT PRIMARY KEY,
    source        TEXT NOT NULL,
    -- The source's own id of this person; the name may change, this may not.
    subject       TEXT NOT NULL,
    name          TEXT NOT NULL UNIQUE,
    display_name  TEXT NOT NULL,
    unix_name     TEXT,
    role          TEXT NOT NULL,
    disabled      BOOLEAN NOT NULL,
    password_hash TEXT,
    theme         TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    last_seen_at  BIGINT,
    UNIQUE (source, subject)
);

CREATE TABLE logins (
    id           TEXT PRIMARY KEY,
    -- SHA-256 of the cookie's secret.
    secret_hash  TEXT NOT NULL UNIQUE,
    user_id      TEXT NOT NULL REFERENCES users (id),
    created_at   BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    address      TEXT NOT NULL
);
CREATE INDEX logins_user ON logins (user_id);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    secret_hash  TEXT NOT NULL UNIQUE,
    user_id      TEXT NOT NULL REFERENCES users (id),
    name         TEXT NOT NULL,
    scopes       TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX tokens_user ON tokens (user_id);

CREATE TABLE sessions (
    id               TEXT PRIMARY KEY,
    owner            TEXT NOT NULL REFERENCES users (id),
    app              TEXT NOT NULL,
    name             TEXT NOT NULL,
    state            TEXT NOT NULL,
    spec             TEXT NOT NULL,
    -- What it holds once admitted, in columns of its own so that usage is one SUM.
    gpus             BIGINT NOT NULL,
    cpus             BIGINT NOT NULL,
    memory_bytes     BIGINT NOT NULL,
    light            BOOLEAN NOT NULL,
    gpu_list         TEXT NOT NULL,
    reasons          TEXT NOT NULL,
    cluster          TEXT NOT NULL,
    placement        TEXT,
    extensions       BIGINT NOT NULL,
    created_at       BIGINT NOT NULL,
    admitted_at      BIGINT,
    started_at       BIGINT,
    ready_at         BIGINT,
    expires_at       BIGINT,
    last_activity_at BIGINT,
    keep_until       BIGINT,
    unknown_since    BIGINT,
    stop_reason      TEXT,
    stopping_at      BIGINT,
    ended_at         BIGINT,
    end_reason       TEXT,
    exit_code        BIGINT,
    signal           BIGINT,
    detail           TEXT
);
CREATE INDEX sessions_owner ON sessions (owner, id);
CREATE INDEX sessions_live ON sessions (id) WHERE state <> 'ended';

CREATE TABLE session_events (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    number     BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    state      TEXT NOT NULL,
    message    TEXT NOT NULL,
    PRIMARY KEY (session_id, number)
);

-- Who held what, when: one row an allocation, open while ended_at is null.
CREATE TABLE intervals (
    session_id   TEXT PRIMARY KEY REFERENCES sessions (id),
    owner        TEXT NOT NULL REFERENCES users (id),
    gpus         BIGINT NOT NULL,
    cpus         BIGINT NOT NULL,
    memory_bytes BIGINT NOT NULL,
    gpu_list     TEXT NOT NULL,
    started_at   BIGINT NOT NULL,
    ended_at     BIGINT
);
CREATE INDEX intervals_owner ON intervals (owner, started_at);
CREATE INDEX intervals_open ON intervals (session_id) WHERE ended_at IS NULL;

CREATE TABLE quota_limits (
    -- 'default' or 'user', later 'group' and 'cluster'.
    scope      TEXT NOT NULL,
    -- A user's id; empty at the default.
    scope_id   TEXT NOT NULL,
    -- 'each' or 'total'.
    kind       TEXT NOT NULL,
    field      TEXT NOT NULL,
    value      BIGINT NOT NULL,
    expires_at BIGINT,
    note       TEXT,
    updated_by TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (scope, scope_id, kind, field)
);

-- Answers to POSTs that named an Idempotency-Key, so that a repeated one creates nothing.
CREATE TABLE idempotency (
    user_id      TEXT NOT NULL REFERENCES users (id),
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    created_id   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (user_id, key)
);

CREATE TABLE audit (
    id      TEXT PRIMARY KEY,
    at      BIGINT NOT NULL,
    -- A user's name, or `unix:NAME` for the command line.
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    detail  TEXT NOT NULL
);
