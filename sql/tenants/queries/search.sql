-- name: searchable
-- Active tenants from one on, in the order in which they are searched.
SELECT customer_id FROM clientmgr.tenants WHERE status = 'active' AND customer_id > %(after)s ORDER BY customer_id;
