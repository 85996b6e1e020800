-- Since when the directory no longer has a group for which something is set. Nobody is in it
-- then, and what is set for it binds nobody; it stays for the case that the group comes back.
ALTER TABLE groups ADD COLUMN absent_since BIGINT;
