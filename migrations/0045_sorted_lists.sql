-- Lists that are sorted by a column: an index for each column and each way in which its list is read. Jobs are sorted by
-- their name and by what their latest attempt is; `job_id` is last there, since a list shows one line a job.
CREATE INDEX jobs_owner_name ON jobs (owner, folded_name, id);
CREATE INDEX jobs_name ON jobs (folded_name, id);
CREATE INDEX jobs_shared_name ON jobs (folded_name, id) WHERE visibility <> 'private';
CREATE INDEX attempts_owner_started ON sessions (owner, (COALESCE(ready_at, started_at, 0)), job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_started ON sessions ((COALESCE(ready_at, started_at, 0)), job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_owner_gpus ON sessions (owner, gpus, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_gpus ON sessions (gpus, job_id) WHERE job_id IS NOT NULL;

CREATE INDEX sessions_owner_name ON sessions (owner, folded_name, id) WHERE job_id IS NULL;
CREATE INDEX sessions_name ON sessions (folded_name, id) WHERE job_id IS NULL;
CREATE INDEX sessions_owner_program ON sessions (owner, app, id) WHERE job_id IS NULL;
CREATE INDEX sessions_program ON sessions (app, id) WHERE job_id IS NULL;
CREATE INDEX sessions_owner_started ON sessions (owner, (COALESCE(ready_at, started_at, 0)), id) WHERE job_id IS NULL;
CREATE INDEX sessions_started ON sessions ((COALESCE(ready_at, started_at, 0)), id) WHERE job_id IS NULL;
CREATE INDEX sessions_owner_gpus ON sessions (owner, gpus, id) WHERE job_id IS NULL;
CREATE INDEX sessions_gpus ON sessions (gpus, id) WHERE job_id IS NULL;

-- As in 0038 for sessions.
ALTER TABLE sweeps ADD COLUMN folded_name TEXT NOT NULL DEFAULT '';
UPDATE sweeps SET folded_name = LOWER(name);
CREATE INDEX sweeps_owner_name ON sweeps (owner, folded_name, id);
CREATE INDEX sweeps_name ON sweeps (folded_name, id);
CREATE INDEX sweeps_owner_tasks ON sweeps (owner, tasks, id);
CREATE INDEX sweeps_tasks ON sweeps (tasks, id);

CREATE INDEX datasets_name ON datasets (folded_name, id);
CREATE INDEX datasets_pictures ON datasets (pictures, id);
CREATE INDEX datasets_classes ON datasets (classes, id);
CREATE INDEX models_name ON models (folded_name, id);
CREATE INDEX models_network ON models (network, id);
CREATE INDEX models_snapshots ON models (snapshots, id);

-- The columns that a user chose for a list, by their names with dots between them.
CREATE TABLE list_columns (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    list    TEXT NOT NULL,
    columns TEXT NOT NULL,
    PRIMARY KEY (user_id, list)
);
