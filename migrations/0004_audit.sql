-- The audit log as a chain: each row's hash covers the hash of the row before. That rows are
-- only appended is held by triggers, which the two databases spell differently: see sqlite/
-- and postgres/. The table of number 1 was in no release.
DROP TABLE audit;

CREATE TABLE audit (
    -- 1, 2, 3 … without a gap, in the order in which the changes were committed.
    number     BIGINT PRIMARY KEY,
    at         BIGINT NOT NULL,
    -- A user's name, `unix:NAME` for the command line, or the part of the portal that acted.
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    -- What it was done to: a user's name, or the id of a session or token.
    subject    TEXT NOT NULL,
    detail     TEXT NOT NULL,
    -- Of the request that asked for it; both are empty where none did.
    address    TEXT NOT NULL,
    request_id TEXT NOT NULL,
    -- SHA-256, in hexadecimal; db/audit.rs says of what.
    hash       TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at, number);
CREATE INDEX audit_actor ON audit (actor, at, number);
CREATE INDEX audit_action ON audit (action, at, number);
CREATE INDEX audit_subject ON audit (subject, at, number);
CREATE INDEX audit_address ON audit (address, at, number);

-- Where the chain begins: the number and hash of the last row that was forgotten by age.
CREATE TABLE audit_anchor (
    id     BIGINT PRIMARY KEY CHECK (id = 1),
    number BIGINT NOT NULL,
    hash   TEXT NOT NULL
);
INSERT INTO audit_anchor (id, number, hash) VALUES (1, 0, '');

-- What is forgotten by age is found by it.
CREATE INDEX sessions_ended ON sessions (ended_at) WHERE state = 'ended';
