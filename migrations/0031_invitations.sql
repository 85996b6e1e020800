-- Managers of a group invite, and the invited person accepts or declines.
CREATE TABLE group_invitations (
    group_id    TEXT NOT NULL REFERENCES groups (id),
    user_id     TEXT NOT NULL REFERENCES users (id),
    -- The name of the manager or administrator who invited.
    invited_by  TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- Null while it is pending.
    declined_at BIGINT,
    PRIMARY KEY (group_id, user_id)
);
CREATE INDEX group_invitations_user ON group_invitations (user_id);
-- Workloads that count in the totals of a group that is not chargeable, because their owner was in it
-- when they were admitted: they go on counting when the owner leaves.
CREATE TABLE counted_sessions (
    group_id   TEXT NOT NULL,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    PRIMARY KEY (group_id, session_id)
);
CREATE INDEX counted_sessions_session ON counted_sessions (session_id);
-- What a manager gives each member stands beside what an administrator set: it only raises. What the
-- managers of a group, who are not administrators, set last is taken to be theirs.
UPDATE quota_limits SET kind = 'raised' WHERE scope = 'group' AND kind = 'each' AND updated_by IN (
    SELECT users.name FROM group_managers JOIN users ON users.id = user_id
    WHERE group_id = scope_id AND role <> 'admin' AND COALESCE(directory_role, '') <> 'admin');
