-- A part of a name is looked for among a user's own jobs in their index, whose rows are short. PostgreSQL has an index of
-- parts.
DROP INDEX jobs_owner;
CREATE INDEX jobs_owner ON jobs (owner, id, folded_name);
