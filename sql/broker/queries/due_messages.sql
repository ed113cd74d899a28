-- name: next_due
SELECT extract(epoch FROM min(not_before) - clock_timestamp())::float8 FROM clientmgr.delayed_message_t
WHERE group_id IS NULL;

-- name: due_topics
SELECT DISTINCT topic_id FROM clientmgr.delayed_message_t
WHERE group_id IS NULL AND not_before <= clock_timestamp() ORDER BY topic_id;

-- name: append_due
SELECT appended FROM clientmgr.append_due(%(topic_id)s, %(most)s);
