-- What ended of a user in a period, the latest end first. The end comes before the id, so that a page of a long history is
-- found by where it begins, and a short period reads nothing else.
CREATE INDEX sessions_owner_ended ON sessions (owner, ended_at, id) WHERE state = 'ended';
