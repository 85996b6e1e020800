-- People of a directory: what it says of them, whether it still does, and their groups.

-- The Unix uid that the directory gives; the host's name service must agree.
ALTER TABLE users ADD COLUMN uid_number BIGINT;
ALTER TABLE users ADD COLUMN mail TEXT;
-- Since when the directory no longer lists somebody, or has locked them.
ALTER TABLE users ADD COLUMN absent_since BIGINT;

CREATE TABLE groups (
    id      TEXT PRIMARY KEY,
    source  TEXT NOT NULL,
    -- The source's own id of this group; for a directory its normalised DN.
    subject TEXT NOT NULL,
    name    TEXT NOT NULL,
    UNIQUE (source, subject)
);
CREATE INDEX groups_name ON groups (name);

CREATE TABLE group_members (
    group_id TEXT NOT NULL REFERENCES groups (id),
    user_id  TEXT NOT NULL REFERENCES users (id),
    PRIMARY KEY (group_id, user_id)
);
CREATE INDEX group_members_user ON group_members (user_id);
