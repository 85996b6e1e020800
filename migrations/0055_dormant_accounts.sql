-- Accounts that nobody used for a time that the site sets are disabled: since when, and when an administrator enabled an
-- account last, from which moment on its time counts again.
ALTER TABLE users ADD COLUMN dormant_at BIGINT;
ALTER TABLE users ADD COLUMN enabled_at BIGINT;
CREATE INDEX users_dormant ON users (name) WHERE dormant_at IS NOT NULL;
