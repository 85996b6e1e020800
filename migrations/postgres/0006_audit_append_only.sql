-- Rows of the audit log are appended, never changed, and leave from the oldest on alone, when
-- the anchor has taken their place in the chain.

CREATE FUNCTION audit_row_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' AND NEW.number = 1 + (SELECT COALESCE(MAX(number), 0) FROM audit) THEN
        RETURN NEW;
    END IF;
    IF TG_OP = 'DELETE' AND OLD.number <= (SELECT number FROM audit_anchor) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log is only appended to';
END $$;

CREATE FUNCTION audit_anchor_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.number < NEW.number
        AND NEW.number < (SELECT MAX(number) FROM audit)
        AND EXISTS (SELECT 1 FROM audit WHERE number = NEW.number AND hash = NEW.hash)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'the anchor of the audit log moves on to a row of it';
END $$;

CREATE FUNCTION audit_truncate_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only appended to';
END $$;

CREATE TRIGGER audit_rows BEFORE INSERT OR UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_row_guard();
CREATE TRIGGER audit_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_truncate_guard();
CREATE TRIGGER audit_anchor_rows BEFORE INSERT OR UPDATE OR DELETE ON audit_anchor
    FOR EACH ROW EXECUTE FUNCTION audit_anchor_guard();
CREATE TRIGGER audit_anchor_truncate BEFORE TRUNCATE ON audit_anchor
    FOR EACH STATEMENT EXECUTE FUNCTION audit_truncate_guard();
