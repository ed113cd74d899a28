-- name: watermarks
SELECT wanted.customer_id, w.deleted_at
FROM unnest(%(customers)s::bigint []) AS wanted (customer_id)
LEFT JOIN clientmgr.contact_deletion_watermarks AS w USING (customer_id)
ORDER BY wanted.customer_id;

-- name: unpublished
SELECT customer_id, count(*) FROM clientmgr.deleted_contacts
WHERE published_at IS NULL AND (customer_id = ANY(%(customers)s::bigint []) OR %(customers)s::bigint [] IS NULL)
GROUP BY customer_id ORDER BY customer_id;

-- name: take
-- In the order of deletion, so that the watermark has nothing unpublished behind it. Locked: two who publish the same
-- customer's deletions wait for each other, and the second finds nothing left.
SELECT contact_id, deleted_at FROM clientmgr.deleted_contacts
WHERE customer_id = %(customer_id)s AND published_at IS NULL
ORDER BY deleted_at, contact_id
LIMIT %(limit)s
FOR UPDATE;

-- name: mark_published
-- From here on only the hash is known.
UPDATE clientmgr.deleted_contacts AS d SET published_at = now(), contact_id = NULL
FROM unnest(%(contact_ids)s::bigint [], %(deleted_ats)s::timestamptz []) AS done (contact_id, deleted_at)
WHERE d.customer_id = %(customer_id)s AND d.published_at IS NULL
    AND (d.contact_id, d.deleted_at) = (done.contact_id, done.deleted_at);

-- name: move_watermark
-- Never ahead of now: what is deleted from now on would be behind it.
INSERT INTO clientmgr.contact_deletion_watermarks AS w (customer_id, deleted_at, published)
VALUES (%(customer_id)s, least(%(deleted_at)s::timestamptz, now()), %(published)s)
-- Rows that came late are behind it.
ON CONFLICT (customer_id) DO UPDATE SET
    deleted_at = greatest(w.deleted_at, excluded.deleted_at),
    published = w.published + excluded.published,
    updated_at = now();

-- name: forget_published
-- What is this far behind the watermark is not read again. What has no hash can't be known again.
DELETE FROM clientmgr.deleted_contacts AS d
USING clientmgr.contact_deletion_watermarks AS w
WHERE d.customer_id = %(customer_id)s AND w.customer_id = d.customer_id AND d.published_at IS NOT NULL
    AND (d.contact_hash IS NULL OR d.deleted_at <= w.deleted_at - make_interval(secs => %(overlap_seconds)s));

-- name: forget_left_behind
-- What killed runs left: ids of deleted contacts that a later search finds again. Long enough for any run to end.
WITH staged AS (
    DELETE FROM clientmgr.deleted_contacts_staged WHERE staged_at < now() - interval '12 hours'
), unerased_staged AS (
    DELETE FROM clientmgr.unerased_contacts_staged WHERE staged_at < now() - interval '12 hours'
)

DELETE FROM clientmgr.unerased_contacts WHERE found_at < now() - interval '12 hours';

-- name: ahead_of_the_clock
-- Published, they would move the watermark past all that is deleted until then. Clocks may differ by some minutes.
SELECT customer_id, count(*) FROM clientmgr.deleted_contacts
WHERE published_at IS NULL AND deleted_at > now() + interval '5 minutes'
GROUP BY customer_id;
