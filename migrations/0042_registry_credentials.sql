-- What people have saved to pull images with that are theirs alone. The password is encrypted with a key of the portal.
CREATE TABLE registry_credentials (
    user_id    TEXT NOT NULL REFERENCES users (id),
    registry   TEXT NOT NULL,
    user_name  TEXT NOT NULL,
    password   TEXT NOT NULL,
    saved_at   BIGINT NOT NULL,
    PRIMARY KEY (user_id, registry)
);

-- The only user who may use an image; NULL for an image of groups or of everybody.
ALTER TABLE images ADD COLUMN owner TEXT REFERENCES users (id);
