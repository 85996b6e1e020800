-- Named sizes that administrators add while the portal runs. Those of the configuration file have no row.
CREATE TABLE profiles (
    name             TEXT PRIMARY KEY,
    title            TEXT NOT NULL,
    -- JSON: GPUs, cores and memory.
    resources        TEXT NOT NULL,
    duration_seconds BIGINT NOT NULL,
    -- Names of groups, as a JSON list; empty for everybody.
    user_groups      TEXT NOT NULL,
    position         BIGINT NOT NULL,
    added_by         TEXT NOT NULL,
    added_at         BIGINT NOT NULL
);
