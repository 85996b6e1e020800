-- Presets: requests for sessions and jobs that users save under a name. A preset is either a user's own or a group's.
CREATE TABLE presets (
    id         TEXT PRIMARY KEY,
    user_id    TEXT REFERENCES users (id),
    group_id   TEXT REFERENCES groups (id),
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- JSON: the request, as the API accepts it.
    request    TEXT NOT NULL,
    saved_by   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    CHECK ((user_id IS NULL) <> (group_id IS NULL))
);
CREATE UNIQUE INDEX presets_of_user ON presets (user_id, kind, name) WHERE user_id IS NOT NULL;
CREATE UNIQUE INDEX presets_of_group ON presets (group_id, kind, name) WHERE group_id IS NOT NULL;
