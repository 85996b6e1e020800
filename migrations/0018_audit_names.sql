-- Rows of the audit log are found by whole names in any case.
DROP INDEX audit_actor;
DROP INDEX audit_action;
DROP INDEX audit_subject;
DROP INDEX audit_address;
CREATE INDEX audit_actor ON audit (lower(actor), at, number);
CREATE INDEX audit_action ON audit (lower(action), at, number);
CREATE INDEX audit_subject ON audit (lower(subject), at, number);
CREATE INDEX audit_address ON audit (lower(address), at, number);
