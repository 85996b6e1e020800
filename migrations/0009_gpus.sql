-- What GPUs did, thinned out: the mean of each minute of a day, of each hour of a month. Who
-- held one then is in `intervals`.
CREATE TABLE gpu_history (
    uuid         TEXT NOT NULL,
    -- How long a row's time is, in seconds.
    span         BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    -- How many readings it is the mean of.
    readings     BIGINT NOT NULL,
    -- Percent.
    utilisation  DOUBLE PRECISION NOT NULL,
    memory_bytes DOUBLE PRECISION NOT NULL,
    milliwatts   DOUBLE PRECISION NOT NULL,
    -- The highest, in degrees Celsius; null where none is measured.
    celsius      BIGINT,
    PRIMARY KEY (uuid, span, at)
);
CREATE INDEX gpu_history_at ON gpu_history (span, at);

-- An operator asked whether its idle GPUs are still needed; null again when that is answered.
ALTER TABLE sessions ADD COLUMN asked_at BIGINT;
ALTER TABLE sessions ADD COLUMN asked_by TEXT;
