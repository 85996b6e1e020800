-- What happens on the portal, in one order: a row for each entry of the audit log, and for each state that a session or an
-- attempt of a job enters. Collectors and webhooks read it from a number on.
CREATE TABLE events (
    number     BIGINT PRIMARY KEY,
    at         BIGINT NOT NULL,
    type       TEXT NOT NULL,
    actor      TEXT NOT NULL,
    subject    TEXT NOT NULL,
    detail     TEXT NOT NULL,
    -- Of a state: the owner's name, the session, and the job if it is an attempt.
    owner      TEXT NOT NULL,
    session_id TEXT,
    job_id     TEXT
);

-- Addresses that the portal calls for events, in their order.
CREATE TABLE webhooks (
    id           TEXT PRIMARY KEY,
    url          TEXT NOT NULL,
    -- Types of events, as a JSON list: `job.ended`, `quota.*`, `*`.
    event_types  TEXT NOT NULL,
    -- What makes its secret another than those of the others.
    salt         TEXT NOT NULL,
    active       BOOLEAN NOT NULL,
    created_by   TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    -- The last event that was delivered, was refused or is of another type.
    position     BIGINT NOT NULL,
    -- Attempts of the next one that have failed, and when it is tried again.
    attempts     BIGINT NOT NULL,
    due_at       BIGINT,
    delivered_at BIGINT,
    refused      BIGINT NOT NULL,
    error        TEXT
);
