-- What the table of results shows of each run, so that it need not read anybody's points: the last
-- and the best of each metric, hyper-parameters, and a few values to draw a line of.

CREATE TABLE run_digests (
    run_id   TEXT PRIMARY KEY,
    -- It grows with each change.
    revision BIGINT NOT NULL,
    -- JSON.
    digest   TEXT NOT NULL
);
