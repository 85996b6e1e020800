-- Indexes for what is asked while tables grow: how much somebody was sent lately, what is forgotten by age, and what is
-- somebody's when they are removed.
CREATE INDEX notifications_user_at ON notifications (user_id, at);
CREATE INDEX notifications_at ON notifications (at);
CREATE INDEX notification_events_user ON notification_events (user_id);
CREATE INDEX notification_events_at ON notification_events (at);
CREATE INDEX idempotency_created ON idempotency (created_at);
CREATE INDEX model_tests_owner ON model_tests (owner);
