-- What a model went on from: another model, and which of its snapshots. It may be gone.
ALTER TABLE models ADD COLUMN parent_id TEXT;
ALTER TABLE models ADD COLUMN parent_snapshot TEXT;
CREATE INDEX models_parent ON models (parent_id);
CREATE INDEX models_directory ON models (directory);
