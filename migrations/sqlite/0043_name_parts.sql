-- A part of a name is found by the three letters that follow one another in it, as PostgreSQL's pg_trgm does it. What is
-- indexed has numbers of its own: a copy by VACUUM may number the rows of other tables anew. The names stand in the index
-- once more, so that tools with an SQLite from 3.34 on can change the tables.
CREATE TABLE name_numbers (
    number INTEGER PRIMARY KEY,
    kind   TEXT NOT NULL,
    id     TEXT NOT NULL,
    UNIQUE (kind, id)
);
CREATE VIRTUAL TABLE name_parts USING fts5 (user, job, tokenize = 'trigram');

INSERT INTO name_numbers (kind, id) SELECT 'user', id FROM users;
INSERT INTO name_numbers (kind, id) SELECT 'job', id FROM jobs ORDER BY id;
INSERT INTO name_parts (rowid, user, job)
    SELECT number, name || char(10) || folded_display_name, '' FROM name_numbers JOIN users USING (id) WHERE kind = 'user';
INSERT INTO name_parts (rowid, user, job)
    SELECT number, '', folded_name FROM name_numbers JOIN jobs USING (id) WHERE kind = 'job';

CREATE TRIGGER users_parts_added AFTER INSERT ON users BEGIN
    INSERT INTO name_numbers (kind, id) VALUES ('user', NEW.id);
    INSERT INTO name_parts (rowid, user, job)
        SELECT number, NEW.name || char(10) || NEW.folded_display_name, '' FROM name_numbers WHERE kind = 'user' AND id = NEW.id;
END;
CREATE TRIGGER users_parts_changed AFTER UPDATE OF name, folded_display_name ON users
WHEN NEW.name <> OLD.name OR NEW.folded_display_name <> OLD.folded_display_name BEGIN
    UPDATE name_parts SET user = NEW.name || char(10) || NEW.folded_display_name, job = ''
        WHERE rowid = (SELECT number FROM name_numbers WHERE kind = 'user' AND id = NEW.id);
END;
CREATE TRIGGER users_parts_removed AFTER DELETE ON users BEGIN
    DELETE FROM name_parts WHERE rowid = (SELECT number FROM name_numbers WHERE kind = 'user' AND id = OLD.id);
    DELETE FROM name_numbers WHERE kind = 'user' AND id = OLD.id;
END;
CREATE TRIGGER jobs_parts_added AFTER INSERT ON jobs BEGIN
    INSERT INTO name_numbers (kind, id) VALUES ('job', NEW.id);
    INSERT INTO name_parts (rowid, user, job)
        SELECT number, '', NEW.folded_name FROM name_numbers WHERE kind = 'job' AND id = NEW.id;
END;
CREATE TRIGGER jobs_parts_changed AFTER UPDATE OF folded_name ON jobs WHEN NEW.folded_name <> OLD.folded_name BEGIN
    UPDATE name_parts SET user = '', job = NEW.folded_name
        WHERE rowid = (SELECT number FROM name_numbers WHERE kind = 'job' AND id = NEW.id);
END;
CREATE TRIGGER jobs_parts_removed AFTER DELETE ON jobs BEGIN
    DELETE FROM name_parts WHERE rowid = (SELECT number FROM name_numbers WHERE kind = 'job' AND id = OLD.id);
    DELETE FROM name_numbers WHERE kind = 'job' AND id = OLD.id;
END;
