-- What administrators tell everybody. Maintenance is one document among the settings.

CREATE TABLE announcements (
    id        TEXT PRIMARY KEY,
    level     TEXT NOT NULL,
    -- Plain text of one line.
    text      TEXT NOT NULL,
    starts_at BIGINT NOT NULL,
    -- NULL: until somebody ends it.
    ends_at   BIGINT,
    -- Whoever has not signed in sees it too.
    on_login  BOOLEAN NOT NULL,
    -- Who changed it last, and when: a user's name, or `unix:NAME` for the command line.
    changed_by TEXT NOT NULL,
    changed_at BIGINT NOT NULL
);
-- What is not over is read again and again, and what is over is forgotten by age.
CREATE INDEX announcements_ends ON announcements (ends_at);

-- Who has put which of them aside. A new text is seen by everybody again.
CREATE TABLE announcement_dismissals (
    announcement_id TEXT NOT NULL REFERENCES announcements (id),
    user_id         TEXT NOT NULL REFERENCES users (id),
    PRIMARY KEY (announcement_id, user_id)
);
CREATE INDEX announcement_dismissals_user ON announcement_dismissals (user_id);
