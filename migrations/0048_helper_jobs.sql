-- Helper jobs: those that the portal submits for a user as a step of something else, such as the build of a dataset, a
-- prediction or a preview. Lists of jobs and runs leave them out unless they are asked for, by the indexes of the others.
ALTER TABLE jobs ADD COLUMN helper BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE runs ADD COLUMN helper BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE trashed_jobs ADD COLUMN helper BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE trashed_runs ADD COLUMN helper BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE jobs SET helper = TRUE WHERE id IN (SELECT job_id FROM datasets WHERE job_id IS NOT NULL
    UNION SELECT precisions_job FROM models WHERE precisions_job IS NOT NULL
    UNION SELECT job_id FROM models WHERE job_id IS NOT NULL AND network = 'imported'
    UNION SELECT job_id FROM model_tests
    UNION SELECT job_id FROM diagnostics WHERE job_id IS NOT NULL);
UPDATE runs SET helper = TRUE WHERE job_id IN (SELECT id FROM jobs WHERE helper);
CREATE INDEX jobs_owner_work ON jobs (owner, id) WHERE NOT helper;
CREATE INDEX runs_owner_work ON runs (owner, id) WHERE NOT helper;

-- Jobs by the state and the duration of their latest attempt, in the words of `db/jobs.rs`.
CREATE INDEX attempts_owner_state ON sessions (owner,
    (CASE state WHEN 'running' THEN 9 WHEN 'starting' THEN 8 WHEN 'stopping' THEN 7 WHEN 'queued' THEN 6
     ELSE (CASE WHEN end_reason = 'exited' AND COALESCE(exit_code, 0) = 0 THEN 1
         WHEN end_reason IN ('stopped_by_owner', 'stopped_by_admin') THEN 2 WHEN end_reason IN ('time_limit', 'idle') THEN 3
         WHEN end_reason = 'out_of_memory' THEN 4 ELSE 5 END) END), job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_state ON sessions (
    (CASE state WHEN 'running' THEN 9 WHEN 'starting' THEN 8 WHEN 'stopping' THEN 7 WHEN 'queued' THEN 6
     ELSE (CASE WHEN end_reason = 'exited' AND COALESCE(exit_code, 0) = 0 THEN 1
         WHEN end_reason IN ('stopped_by_owner', 'stopped_by_admin') THEN 2 WHEN end_reason IN ('time_limit', 'idle') THEN 3
         WHEN end_reason = 'out_of_memory' THEN 4 ELSE 5 END) END), job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_owner_duration ON sessions (owner,
    (CASE WHEN ended_at IS NULL
     THEN 9000000000000000 - COALESCE(ready_at, started_at, 9000000000000000)
     ELSE ended_at - COALESCE(ready_at, started_at, ended_at) END), job_id) WHERE job_id IS NOT NULL;
CREATE INDEX attempts_duration ON sessions (
    (CASE WHEN ended_at IS NULL
     THEN 9000000000000000 - COALESCE(ready_at, started_at, 9000000000000000)
     ELSE ended_at - COALESCE(ready_at, started_at, ended_at) END), job_id) WHERE job_id IS NOT NULL;
