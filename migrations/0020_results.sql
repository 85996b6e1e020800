-- What the table of results shows of each run, so that it need not read anybody's points: the last
-- and the best of each metric, hyper-parameters, and a few values to draw a line of.

CREATE TABLE run_digests (
    run_id   TEXT PRIMARY KEY,
    -- It grows with each change.
    revision BIGINT NOT NULL,
    -- JSON.
    digest   TEXT NOT NULL
);

-- What an attempt of a job made of the machine: cores, memory and GPUs over time, in so many stretches at most.
CREATE TABLE session_hardware (
    session_id TEXT PRIMARY KEY,
    -- JSON.
    stretches  TEXT NOT NULL
);
