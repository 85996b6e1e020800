-- Notifications: what people want to be told of their jobs, what was noticed, and what is to be delivered.

CREATE TABLE notification_wishes (
    user_id TEXT PRIMARY KEY REFERENCES users (id),
    -- JSON: which events, and by which ways.
    wishes  TEXT NOT NULL
);

-- What was noticed of an attempt, whether somebody wanted to hear it or not: each once. Browsers show it
-- until its owner has seen it.
CREATE TABLE notification_events (
    session_id TEXT NOT NULL,
    event      TEXT NOT NULL,
    user_id    TEXT NOT NULL REFERENCES users (id),
    -- JSON.
    message    TEXT NOT NULL,
    at         BIGINT NOT NULL,
    seen_at    BIGINT,
    PRIMARY KEY (session_id, event)
);
CREATE INDEX notification_events_unseen ON notification_events (user_id, at) WHERE seen_at IS NULL;

CREATE TABLE notifications (
    id       TEXT PRIMARY KEY,
    user_id  TEXT NOT NULL REFERENCES users (id),
    way      TEXT NOT NULL,
    -- JSON.
    message  TEXT NOT NULL,
    state    TEXT NOT NULL,
    attempts BIGINT NOT NULL,
    -- Not tried before then.
    due_at   BIGINT NOT NULL,
    at       BIGINT NOT NULL,
    -- A sentence: why it is not delivered.
    error    TEXT
);
CREATE INDEX notifications_user ON notifications (user_id, id);
CREATE INDEX notifications_due ON notifications (due_at) WHERE state = 'waiting';

-- Attempts of jobs by their end.
CREATE INDEX sessions_jobs_ended ON sessions (ended_at) WHERE job_id IS NOT NULL;
