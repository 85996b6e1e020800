-- Software environments that administrators add while the portal runs. Those of the configuration file have no row.
CREATE TABLE environments (
    name       TEXT PRIMARY KEY,
    title      TEXT NOT NULL,
    -- JSON: the packages in pip's words.
    packages   TEXT NOT NULL,
    added_by   TEXT NOT NULL,
    added_at   BIGINT NOT NULL
);
