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
