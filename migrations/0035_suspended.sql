-- What a batch system counts of a workload's time: since when it is suspended, and the start and the limit (seconds)
-- that its end was last computed from.
ALTER TABLE sessions ADD COLUMN suspended_since BIGINT;
ALTER TABLE sessions ADD COLUMN counted_from BIGINT;
ALTER TABLE sessions ADD COLUMN counted_limit BIGINT;
