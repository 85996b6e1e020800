-- The name as the directory spells it, where that differs from the name here: hosts may spell the account so too.
ALTER TABLE users ADD COLUMN directory_unix_name TEXT;
CREATE INDEX users_directory_unix_name ON users (directory_unix_name) WHERE directory_unix_name IS NOT NULL;
