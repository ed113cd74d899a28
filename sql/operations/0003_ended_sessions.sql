-- Sessions of the dashboard that ended before they expired. A session is a signed cookie, and a live token is made from
-- it: both are good until this table says otherwise. Whoever takes them keeps it in memory and is told of changes.
CREATE TABLE clientmgr.ended_sessions (
    session_id text NOT NULL,  -- empty: every session of the user that began before ended_at
    user_name text NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (session_id, user_name)
);

CREATE FUNCTION clientmgr.tell_of_ended_sessions() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('ended_sessions', '');
    RETURN NULL;
END
$$;
CREATE TRIGGER ended_sessions_changed AFTER INSERT OR UPDATE ON clientmgr.ended_sessions
FOR EACH STATEMENT EXECUTE FUNCTION clientmgr.tell_of_ended_sessions();

-- The users as the dashboard saw them last, each with a digest of its line in the users file. So a removal or a new
-- password is noticed also where the dashboard was restarted with it.
CREATE TABLE clientmgr.session_users (
    name text PRIMARY KEY,
    mark text NOT NULL
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.ended_sessions, clientmgr.session_users TO clientmgr_writer;
GRANT SELECT ON clientmgr.ended_sessions TO clientmgr_reader;
