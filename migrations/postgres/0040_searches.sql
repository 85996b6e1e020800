-- A part of a name is found by the three letters that follow one another in it. The module for that comes with PostgreSQL
-- but may not be installed or not be allowed: searches then go through the tables.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX users_name_parts ON users USING gin (name gin_trgm_ops);
    CREATE INDEX users_display_name_parts ON users USING gin (folded_display_name gin_trgm_ops);
    CREATE INDEX jobs_name_parts ON jobs USING gin (folded_name gin_trgm_ops);
EXCEPTION
    WHEN insufficient_privilege OR undefined_file OR undefined_object OR feature_not_supported THEN
        RAISE NOTICE 'names are not indexed by their parts: %', SQLERRM;
END
$$;
