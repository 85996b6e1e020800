-- Whose a job of the batch system is, is asked for by its Unix account.
CREATE INDEX users_unix_name ON users (unix_name) WHERE unix_name IS NOT NULL;
