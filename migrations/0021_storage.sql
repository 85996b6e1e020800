-- What people's homes held when they were measured last; only where a limit on storage is set.

CREATE TABLE storage (
    user_id     TEXT PRIMARY KEY REFERENCES users (id),
    bytes       BIGINT NOT NULL,
    files       BIGINT NOT NULL,
    -- Folders that could not be looked into.
    unreadable  BIGINT NOT NULL,
    -- NULL: never, yet.
    measured_at BIGINT,
    -- When somebody last tried, with or without success.
    tried_at    BIGINT NOT NULL
);
