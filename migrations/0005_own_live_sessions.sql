-- Somebody's live sessions, which every look at their home page asks for, are found without
-- reading their history.
CREATE INDEX sessions_owner_live ON sessions (owner, id) WHERE state <> 'ended';
