-- Names as they are searched: without case, in any script. The databases fold ASCII alone, or by
-- a language, so the program folds (db/search.rs); this is close enough for what is there.
ALTER TABLE users ADD COLUMN folded_display_name TEXT NOT NULL DEFAULT '';
UPDATE users SET folded_display_name = LOWER(display_name);
ALTER TABLE groups ADD COLUMN folded_name TEXT NOT NULL DEFAULT '';
UPDATE groups SET folded_name = LOWER(name);
