-- The name of a session without its case, for searches: as in 0012 for people and groups.
ALTER TABLE sessions ADD COLUMN folded_name TEXT NOT NULL DEFAULT '';
UPDATE sessions SET folded_name = LOWER(name);
