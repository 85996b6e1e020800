-- A text that begins like another one is a range in the order of bytes alone, not in that of a language.
DROP INDEX audit_actor;
DROP INDEX audit_action;
DROP INDEX audit_subject;
DROP INDEX audit_address;
CREATE INDEX audit_actor ON audit ((lower(actor) COLLATE "C"), at, number);
CREATE INDEX audit_action ON audit ((lower(action) COLLATE "C"), at, number);
CREATE INDEX audit_subject ON audit ((lower(subject) COLLATE "C"), at, number);
CREATE INDEX audit_address ON audit ((lower(address) COLLATE "C"), at, number);

-- Jobs by a tag, and by the group that their latest attempt is charged to, in the order of lists.
CREATE TABLE job_tags (
    tag    TEXT NOT NULL,
    owner  TEXT NOT NULL REFERENCES users (id),
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, owner, job_id)
);
CREATE INDEX job_tags_tag ON job_tags (tag, job_id);
CREATE INDEX job_tags_job ON job_tags (job_id);
CREATE INDEX job_tags_owner ON job_tags (owner);
INSERT INTO job_tags (tag, owner, job_id)
    SELECT DISTINCT tag, jobs.owner, jobs.id FROM jobs, json_array_elements_text(jobs.tags::json) AS tag;
CREATE INDEX sessions_charged ON sessions (charged_group, job_id) WHERE job_id IS NOT NULL;
CREATE INDEX sessions_charged_owner ON sessions (charged_group, owner, job_id) WHERE job_id IS NOT NULL;
-- Those with a role beyond that of a user, and those who cannot sign in: few of many.
CREATE INDEX users_raised ON users (name) WHERE role <> 'user' OR directory_role <> 'user';
CREATE INDEX users_disabled ON users (name) WHERE disabled;
CREATE INDEX users_absent ON users (name) WHERE absent_since IS NOT NULL;
-- Sessions among many more attempts of jobs.
CREATE INDEX sessions_interactive ON sessions (id) WHERE job_id IS NULL;
CREATE INDEX sessions_owner_interactive ON sessions (owner, id) WHERE job_id IS NULL;
