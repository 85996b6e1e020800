-- As in 0040, for the names of sessions: without the module, searches go through the table.
DO $$
BEGIN
    CREATE INDEX sessions_name_parts ON sessions USING gin (folded_name gin_trgm_ops) WHERE job_id IS NULL;
EXCEPTION
    WHEN undefined_object THEN
        RAISE NOTICE 'names of sessions are not indexed by their parts: %', SQLERRM;
END
$$;
