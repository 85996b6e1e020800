-- When its owner first came to it. One that waited for its turn and is never opened is released.
ALTER TABLE sessions ADD COLUMN opened_at BIGINT;
