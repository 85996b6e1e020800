-- A link by which the owner of a new local account sets the first password. One an account; the
-- secret is kept as a hash.
CREATE TABLE account_invitations (
    user_id TEXT PRIMARY KEY REFERENCES users (id),
    hash TEXT NOT NULL UNIQUE,
    expires_at BIGINT NOT NULL
);
