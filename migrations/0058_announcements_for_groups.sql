-- Announcements may be for some groups.
-- Names of groups, as a JSON list; empty for everybody.
ALTER TABLE announcements ADD COLUMN user_groups TEXT NOT NULL DEFAULT '[]';
