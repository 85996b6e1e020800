-- A login is a browser session now: what is stored is SHA-256 of the session's id. Cookies from before hold no such
-- id, so their logins end here and their users sign in again.
DELETE FROM logins;
ALTER TABLE logins RENAME COLUMN secret_hash TO session_hash;
