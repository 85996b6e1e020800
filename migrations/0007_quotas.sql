-- Quotas of groups and of all together, and what a session is charged to.

-- People can choose it for what they start; its totals then bind.
ALTER TABLE groups ADD COLUMN chargeable BOOLEAN NOT NULL DEFAULT FALSE;
-- Its limits for each member also hold where another group would give more.
ALTER TABLE groups ADD COLUMN restrictive BOOLEAN NOT NULL DEFAULT FALSE;

-- The group that somebody's sessions are charged to while they choose no other.
ALTER TABLE users ADD COLUMN charged_group TEXT;

-- The id of the group that pays, if any. The group may be gone when the history is read.
ALTER TABLE sessions ADD COLUMN charged_group TEXT;
ALTER TABLE intervals ADD COLUMN charged_group TEXT;
-- What was asked for, in columns of their own for the order among those that wait.
ALTER TABLE sessions ADD COLUMN duration_seconds BIGINT NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN gpu_model TEXT;

-- Hours of a period are summed up by whoever used them.
CREATE INDEX intervals_owner_ended ON intervals (owner, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX intervals_group_ended ON intervals (charged_group, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX intervals_ended ON intervals (ended_at) WHERE ended_at IS NOT NULL;
