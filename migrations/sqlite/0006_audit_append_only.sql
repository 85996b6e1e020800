-- Rows of the audit log are appended, never changed, and leave from the oldest on alone, when
-- the anchor has taken their place in the chain.

-- INSERT OR REPLACE would delete without a trigger: it fails here, before.
CREATE TRIGGER audit_is_appended_to BEFORE INSERT ON audit
WHEN NEW.number <> 1 + (SELECT COALESCE(MAX(number), 0) FROM audit)
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;

CREATE TRIGGER audit_leaves_from_the_oldest_on BEFORE DELETE ON audit
WHEN (SELECT number FROM audit_anchor) < OLD.number
BEGIN SELECT RAISE(ABORT, 'the audit log is only appended to'); END;

CREATE TRIGGER audit_anchor_is_one BEFORE INSERT ON audit_anchor
BEGIN SELECT RAISE(ABORT, 'the audit log has one anchor'); END;

CREATE TRIGGER audit_anchor_moves_on BEFORE UPDATE ON audit_anchor
WHEN NEW.number <= OLD.number
    OR (SELECT MAX(number) FROM audit) <= NEW.number
    OR NOT EXISTS (SELECT 1 FROM audit WHERE number = NEW.number AND hash = NEW.hash)
BEGIN SELECT RAISE(ABORT, 'the anchor of the audit log moves on to a row of it'); END;

CREATE TRIGGER audit_anchor_stays BEFORE DELETE ON audit_anchor
BEGIN SELECT RAISE(ABORT, 'the audit log has one anchor'); END;
