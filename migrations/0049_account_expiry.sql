-- The moment at which an account expires, and the moment at which it was disabled for that. Enabling it clears the latter.
ALTER TABLE users ADD COLUMN expires_at BIGINT;
ALTER TABLE users ADD COLUMN expired_at BIGINT;
CREATE INDEX users_expiring ON users (name) WHERE expires_at IS NOT NULL;
CREATE INDEX users_expired ON users (name) WHERE expired_at IS NOT NULL;
