-- Lists of what other users share, of sessions by app or by end, and of sign-ins that have expired, each by an index.
-- A job's run has the visibility of its job.
UPDATE runs SET visibility = (SELECT jobs.visibility FROM jobs WHERE jobs.id = runs.job_id)
    WHERE job_id IN (SELECT id FROM jobs);
CREATE INDEX runs_shared ON runs (id) WHERE visibility <> 'private';
CREATE INDEX jobs_shared ON jobs (id) WHERE visibility <> 'private';
CREATE INDEX sessions_app ON sessions (app, id);
CREATE INDEX sessions_end_reason ON sessions (end_reason, id);
CREATE INDEX logins_expires ON logins (expires_at);
CREATE INDEX logins_last_seen ON logins (last_seen_at);
