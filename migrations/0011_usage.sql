-- Use over time is summed up by when allocations began and ended; what that needs stands in the
-- indexes themselves, so that a month of it is read in one piece.
DROP INDEX intervals_ended;
CREATE INDEX intervals_ended ON intervals (ended_at, started_at, gpus, cpus, owner, charged_group)
    WHERE ended_at IS NOT NULL;
CREATE INDEX intervals_started ON intervals (started_at, gpus, cpus);
