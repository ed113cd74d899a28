-- name: ended
SELECT session_id, user_name, extract(epoch FROM ended_at)::float8
FROM clientmgr.ended_sessions WHERE expires_at > now();

-- name: end
INSERT INTO clientmgr.ended_sessions (session_id, user_name, expires_at)
VALUES (%(session_id)s, %(user_name)s, to_timestamp(%(expires_at)s))
ON CONFLICT DO NOTHING;

-- name: forget_expired
DELETE FROM clientmgr.ended_sessions WHERE expires_at < now();

-- name: lock_users
SELECT pg_advisory_xact_lock(hashtext('clientmgr.session_users'));

-- name: note_users
-- Ends the sessions of those who are gone or whose line changed, and keeps how the users are now.
WITH given AS (
    SELECT key AS name, value AS mark FROM jsonb_each_text(%(marks)s::jsonb)
), changed AS (
    SELECT known.name FROM clientmgr.session_users AS known LEFT JOIN given USING (name)
    WHERE given.mark IS DISTINCT FROM known.mark
), ended AS (
    INSERT INTO clientmgr.ended_sessions (session_id, user_name, expires_at)
    SELECT '', name, now() + make_interval(secs => %(lifetime_s)s) FROM changed
    ON CONFLICT (session_id, user_name) DO UPDATE SET ended_at = clock_timestamp(), expires_at = excluded.expires_at
), gone AS (
    DELETE FROM clientmgr.session_users
    WHERE name IN (SELECT name FROM changed) AND name NOT IN (SELECT name FROM given)
), kept AS (
    INSERT INTO clientmgr.session_users AS known (name, mark) SELECT name, mark FROM given
    ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE known.mark <> excluded.mark
)
SELECT name FROM changed ORDER BY name;
