-- name: take
-- Offsets have no gaps: they are totals. Dead letters have none, so those since the last sample are counted.
INSERT INTO clientmgr.samples (at, events, sends, errors, dead_letters, last_letter, unread, oldest_unread_s)
SELECT date_bin('1 minute', now(), 'epoch'), totals.events, totals.sends, totals.errors,
    CASE WHEN before.last_letter IS NULL THEN 0 ELSE before.dead_letters + letters.came END,
    coalesce(letters.newest, before.last_letter, 0),
    %(unread)s, %(oldest_unread_s)s
FROM (
    SELECT coalesce(sum(c.next_offset - 1) FILTER (WHERE c.topic = %(events)s), 0)::bigint AS events,
        coalesce(sum(c.next_offset - 1) FILTER (WHERE c.topic ~ %(sends)s), 0)::bigint AS sends,
        coalesce(sum(c.next_offset - 1) FILTER (WHERE c.topic = ANY (%(errors)s::text[])), 0)::bigint AS errors
    FROM clientmgr.log_counter AS c
) AS totals
LEFT JOIN LATERAL (
    SELECT s.dead_letters, s.last_letter FROM clientmgr.samples AS s ORDER BY s.at DESC LIMIT 1
) AS before ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS came, max(d.id) AS newest
    FROM clientmgr.dead_letter_queue AS d WHERE d.id > coalesce(before.last_letter, 0)
) AS letters
ON CONFLICT (at) DO NOTHING;

-- name: forget
DELETE FROM clientmgr.samples WHERE at < now() - interval '25 hours';

-- name: last_day
SELECT at, events, sends, errors + dead_letters AS errors, unread, oldest_unread_s
FROM clientmgr.samples WHERE at >= now() - interval '24 hours' ORDER BY at;
