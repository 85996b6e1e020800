-- Warnings and faults of the health report that were sent to administrators and have not ended.
CREATE TABLE health_alerts (
    name  TEXT PRIMARY KEY,
    -- JSON.
    alert TEXT NOT NULL
);
