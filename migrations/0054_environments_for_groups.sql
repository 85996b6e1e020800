-- Environments that administrators add may be for some groups, and have a place in lists.
-- Names of groups, as a JSON list; empty for everybody.
ALTER TABLE environments ADD COLUMN user_groups TEXT NOT NULL DEFAULT '[]';
ALTER TABLE environments ADD COLUMN position BIGINT NOT NULL DEFAULT 1000;
