-- Dagster logs in as a role of its own, which owns the schema with its tables and has no right on ours. Like the other roles it
-- belongs to the whole server.
DO $$
DECLARE
    found record;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'clientmgr_dagster') THEN
        BEGIN
            CREATE ROLE clientmgr_dagster NOLOGIN NOINHERIT;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END IF;
    IF NOT pg_has_role(current_user, 'clientmgr_dagster', 'SET') THEN
        GRANT clientmgr_dagster TO CURRENT_USER;
    END IF;
    CREATE SCHEMA IF NOT EXISTS dagster;
    -- The owner made it so far, and all that is in it. What an operator gave to another login stays that login's.
    IF pg_has_role(current_user, (SELECT nspowner FROM pg_namespace WHERE nspname = 'dagster'), 'USAGE') THEN
        ALTER SCHEMA dagster OWNER TO clientmgr_dagster;
        FOR found IN
            SELECT c.oid::regclass AS name FROM pg_class AS c
            WHERE c.relnamespace = 'dagster'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
        LOOP
            EXECUTE format('ALTER TABLE %s OWNER TO clientmgr_dagster', found.name);
        END LOOP;
    END IF;
END
$$;
