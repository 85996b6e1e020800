-- Container images that administrators added. Those of the configuration file have no row here.
CREATE TABLE images (
    name        TEXT PRIMARY KEY,
    title       TEXT NOT NULL,
    reference   TEXT NOT NULL,
    -- Names of groups, as a JSON list; empty for everybody.
    user_groups TEXT NOT NULL,
    added_by    TEXT NOT NULL,
    added_at    BIGINT NOT NULL
);

-- What the reference of an image named when it was pulled last: workloads run with this digest until the next pull.
CREATE TABLE image_digests (
    name      TEXT PRIMARY KEY,
    reference TEXT NOT NULL,
    digest    TEXT NOT NULL,
    pulled_at BIGINT NOT NULL
);

-- The digest of the image that a session or an attempt of a job was started with.
ALTER TABLE sessions ADD COLUMN image_digest TEXT;
