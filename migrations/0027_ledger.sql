-- In which order allocations ended for the database: whoever keeps them in memory asks for those
-- behind the last one that it knows. Null while one is held.
ALTER TABLE intervals ADD COLUMN number BIGINT;
UPDATE intervals SET number = placed.place
    FROM (SELECT session_id, ROW_NUMBER() OVER (ORDER BY ended_at, session_id) AS place
          FROM intervals WHERE ended_at IS NOT NULL) AS placed
    WHERE placed.session_id = intervals.session_id;
CREATE UNIQUE INDEX intervals_number ON intervals (number);
-- Nothing is summed up by when it began any more.
DROP INDEX intervals_started;
