-- What of the health report administrators were told of, and that has not been well again since.
CREATE TABLE health_alerts (
    name  TEXT PRIMARY KEY,
    -- JSON.
    alert TEXT NOT NULL
);
