-- People and groups as administrators keep them: a role that is given here beside the one that
-- a directory gives, groups that are made here, and who manages a group.

-- `role` is what was given here; this one is what the directory says, and the greater one counts.
ALTER TABLE users ADD COLUMN directory_role TEXT;
UPDATE users SET directory_role = role, role = 'user' WHERE source <> 'local';
CREATE INDEX users_seen ON users ((COALESCE(last_seen_at, 0)), id);

-- Of groups that were made here; a directory's have none.
ALTER TABLE groups ADD COLUMN created_at BIGINT;

-- A manager need not be a member, and stays one whatever the directory says of the members.
CREATE TABLE group_managers (
    group_id TEXT NOT NULL REFERENCES groups (id),
    user_id  TEXT NOT NULL REFERENCES users (id),
    PRIMARY KEY (group_id, user_id)
);
CREATE INDEX group_managers_user ON group_managers (user_id);
