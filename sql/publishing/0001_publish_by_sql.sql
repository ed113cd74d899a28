-- Publishing by SQL, for any language: clientmgr.publish and its siblings, in the caller's transaction (docs/messages.md). They
-- check what clientmgr/broker/message_checks.py checks. Logins that may publish and do nothing else are members of
-- clientmgr_publisher, and publish_rights says to which topics each may.
-- A login that may make no roles goes on without: an administrator makes it, and the next migrate gives it its rights.
DO $$
BEGIN
    -- Like the other roles it belongs to the whole server: another database may have made it, or be making it right now.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'clientmgr_publisher') THEN
        CREATE ROLE clientmgr_publisher NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
    NULL;
END
$$;

-- Only the owner writes it. topic: a topic's name, or * for all but the one with account deletions, which has to be named.
CREATE TABLE clientmgr.publish_rights (
    role name NOT NULL, -- a login, or a role that logins are members of
    topic text NOT NULL,
    granted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (role, topic)
);

-- Topics whose messages are acted on in their publisher's name, as clientmgr/contracts/publishers.py says (STAMPED).
CREATE FUNCTION clientmgr.is_stamped(topic text) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN topic IN (
    'client-manager.activate-customer', 'client-manager.account-deletion', 'client-manager.contact-deletion'
);

-- Whether whoever has logged in may publish to the topic. Our own daemons write to the log anyway.
CREATE FUNCTION clientmgr.may_publish(topic text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
RETURN pg_has_role(session_user, 'clientmgr_writer', 'USAGE') OR EXISTS (
    SELECT FROM clientmgr.publish_rights AS r JOIN pg_roles AS held ON held.rolname = r.role
    WHERE (r.topic = may_publish.topic OR (r.topic = '*' AND may_publish.topic <> 'client-manager.account-deletion'))
        AND pg_has_role(session_user, held.oid, 'USAGE')
);

CREATE FUNCTION clientmgr.refuse_argument(argument text, expected text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION '%: expected %', argument, expected USING ERRCODE = 'invalid_parameter_value';
END
$$;

CREATE FUNCTION clientmgr.check_topic(topic text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF topic IS NULL THEN
        PERFORM clientmgr.refuse_argument('topic', 'a topic''s name, got NULL');
    ELSIF NOT clientmgr.may_publish(topic) THEN
        RAISE EXCEPTION 'topic: % may not publish to %', session_user, topic
            USING ERRCODE = 'insufficient_privilege',
            HINT = 'The owner of the schema grants it by a row in clientmgr.publish_rights.';
    ELSIF NOT EXISTS (SELECT FROM clientmgr.log_counter AS c WHERE c.topic = check_topic.topic) THEN
        RAISE EXCEPTION 'topic % does not exist', topic USING ERRCODE = 'no_data_found', DETAIL = topic;
    END IF;
END
$$;

-- place: where the message stands in a batch; empty for a single one.
CREATE FUNCTION clientmgr.check_message(
    place text, payload bytea, tenant text, key text, attributes jsonb, deliver_at timestamptz, dedup_key text
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    attribute record;
BEGIN
    IF payload IS NULL THEN
        PERFORM clientmgr.refuse_argument(place || 'payload', 'a value, got NULL');
    ELSIF octet_length(payload) > 8388608 THEN
        PERFORM clientmgr.refuse_argument(
            place || 'payload', format('at most 8388608 bytes, got %s', octet_length(payload))
        );
    END IF;
    IF octet_length(tenant) > 1024 THEN
        PERFORM clientmgr.refuse_argument(place || 'tenant', 'at most 1024 bytes');
    ELSIF octet_length(key) > 1024 THEN
        PERFORM clientmgr.refuse_argument(place || 'key', 'at most 1024 bytes');
    ELSIF octet_length(dedup_key) NOT BETWEEN 1 AND 1024 THEN
        PERFORM clientmgr.refuse_argument(place || 'dedup_key', '1 to 1024 bytes, or NULL');
    ELSIF deliver_at > clock_timestamp() + interval '366 days' THEN
        PERFORM clientmgr.refuse_argument(place || 'deliver_at', 'a time within a year');
    ELSIF jsonb_typeof(attributes) <> 'object' THEN
        PERFORM clientmgr.refuse_argument(place || 'attributes', 'a JSON object with strings in it');
    END IF;
    IF attributes <> '{}' THEN
        IF (SELECT count(*) FROM jsonb_object_keys(attributes)) > 100 THEN
            PERFORM clientmgr.refuse_argument(place || 'attributes', 'at most 100');
        END IF;
        FOR attribute IN SELECT a.key, a.value FROM jsonb_each(attributes) AS a LOOP
            IF octet_length(attribute.key) NOT BETWEEN 1 AND 256 THEN
                PERFORM clientmgr.refuse_argument(place || 'attributes', 'names of 1 to 256 bytes');
            ELSIF attribute.key IN ('clientmgr-erased', 'clientmgr-publisher') THEN
                PERFORM clientmgr.refuse_argument(
                    place || 'attributes', format('any name but %s, which is ours', attribute.key)
                );
            ELSIF jsonb_typeof(attribute.value) <> 'string' OR octet_length(attribute.value #>> '{}') > 1024 THEN
                PERFORM clientmgr.refuse_argument(
                    format('%sattributes.%s', place, attribute.key), 'a string of at most 1024 bytes'
                );
            END IF;
        END LOOP;
    END IF;
END
$$;

-- For bytes that did not come as jsonb. Texts of escaped NULs are JSON, though jsonb can't hold them.
CREATE FUNCTION clientmgr.check_json(place text, payload bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM convert_from(payload, 'UTF8')::json;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    PERFORM clientmgr.refuse_argument(place || 'payload', format('JSON in UTF-8 (%s)', SQLERRM));
END
$$;

-- Whether nobody has published the key to the topic yet, as far as this transaction can see.
CREATE FUNCTION clientmgr.is_new_key(topic text, digest bytea) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
RETURN NOT EXISTS (
    SELECT FROM clientmgr.log_counter AS c
    WHERE c.topic = is_new_key.topic AND (
        EXISTS (
            SELECT FROM clientmgr.publish_keys AS k WHERE k.topic_id = c.id AND k.digest = is_new_key.digest
        ) OR EXISTS (
            SELECT FROM clientmgr.pending_publish_t AS p
            WHERE p.xid = pg_current_xact_id_if_assigned() AND p.topic_id = c.id
                AND is_new_key.digest = ANY (p.key_digests)
        )
    )
);

-- What the message gets of us, in addition to its own attributes.
CREATE FUNCTION clientmgr.stamped(topic text, attributes jsonb) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
RETURN nullif((
    attributes || CASE
        WHEN clientmgr.is_stamped(topic) THEN jsonb_build_object('clientmgr-publisher', 'sql:' || session_user)
        ELSE '{}'
    END
)::text, '{}');

CREATE FUNCTION clientmgr.publish_checked(
    topic text, payload bytea, tenant text, key text, attributes jsonb, deliver_at timestamptz, dedup_key text
) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digest CONSTANT bytea := sha256(convert_to(dedup_key, 'UTF8'));
BEGIN
    PERFORM clientmgr.check_topic(topic);
    PERFORM clientmgr.check_message('', payload, tenant, key, attributes, deliver_at, dedup_key);
    -- Before the answer about the key, which would be wrong as well.
    PERFORM clientmgr.refuse_old_snapshots();
    IF digest IS NOT NULL AND NOT clientmgr.is_new_key(topic, digest) THEN
        RETURN false;
    END IF;
    PERFORM clientmgr.stage_messages(
        topic, ARRAY[coalesce(tenant, '')], ARRAY[coalesce(key, '')], ARRAY[payload],
        ARRAY[clientmgr.stamped(topic, coalesce(attributes, '{}'))],
        CASE WHEN deliver_at IS NOT NULL THEN ARRAY[deliver_at] END,
        CASE WHEN digest IS NOT NULL THEN ARRAY[digest] END
    );
    RETURN true;
END
$$;

-- Publishes a message with the caller's transaction. False: the dedup key was published before, and nothing is published.
CREATE FUNCTION clientmgr.publish(
    topic text, payload jsonb, tenant text DEFAULT '', key text DEFAULT '', attributes jsonb DEFAULT '{}',
    deliver_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL
) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
RETURN clientmgr.publish_checked(
    topic, convert_to(payload::text, 'UTF8'), tenant, key, attributes, deliver_at, dedup_key
);

-- `publish` for JSON whose bytes are to leave exactly as they came. Not an overload: 'text' could mean either.
CREATE FUNCTION clientmgr.publish_bytes(
    topic text, payload bytea, tenant text DEFAULT '', key text DEFAULT '', attributes jsonb DEFAULT '{}',
    deliver_at timestamptz DEFAULT NULL, dedup_key text DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM clientmgr.check_json('', payload);
    RETURN clientmgr.publish_checked(topic, payload, tenant, key, attributes, deliver_at, dedup_key);
END
$$;

-- Publishes many: an array of objects with publish's arguments as members. Returns for each whether it is new.
CREATE FUNCTION clientmgr.publish_batch(topic text, messages jsonb) RETURNS boolean []
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    message record;
    place text;
    stranger text;
    body bytea;
    digest bytea;
    when_due timestamptz;
    is_new boolean;
    answers boolean [] := '{}';
    host_ids text [] := '{}';
    user_ids text [] := '{}';
    payloads bytea [] := '{}';
    attributes text [] := '{}';
    deliver_ats timestamptz [] := '{}';
    digests bytea [] := '{}';
BEGIN
    PERFORM clientmgr.check_topic(topic);
    PERFORM clientmgr.refuse_old_snapshots();
    IF jsonb_typeof(messages) IS DISTINCT FROM 'array' THEN
        PERFORM clientmgr.refuse_argument('messages', 'a JSON array of objects');
    END IF;
    FOR message IN
        SELECT e.position, e.element, e.element->'payload' AS payload, e.element->>'tenant' AS tenant,
            e.element->>'key' AS key, e.element->'attributes' AS attributes, e.element->>'deliver_at' AS deliver_at,
            e.element->>'dedup_key' AS dedup_key
        FROM jsonb_array_elements(messages) WITH ORDINALITY AS e (element, position) ORDER BY e.position
    LOOP
        place := format('messages[%s].', message.position - 1);
        IF jsonb_typeof(message.element) <> 'object' THEN
            PERFORM clientmgr.refuse_argument(rtrim(place, '.'), 'an object');
        END IF;
        SELECT k INTO stranger FROM jsonb_object_keys(message.element) AS k
        WHERE k NOT IN ('payload', 'tenant', 'key', 'attributes', 'deliver_at', 'dedup_key') LIMIT 1;
        IF FOUND THEN
            PERFORM clientmgr.refuse_argument(
                place || stranger, 'payload, tenant, key, attributes, deliver_at or dedup_key'
            );
        END IF;
        BEGIN
            when_due := message.deliver_at::timestamptz;
        EXCEPTION WHEN data_exception THEN
            PERFORM clientmgr.refuse_argument(place || 'deliver_at', 'a time like 2026-11-18T16:00:00Z');
        END;
        body := convert_to(message.payload::text, 'UTF8');
        -- As an argument that is left out or null.
        IF jsonb_typeof(message.attributes) = 'null' THEN
            message.attributes := NULL;
        END IF;
        PERFORM clientmgr.check_message(
            place, body, message.tenant, message.key, message.attributes, when_due, message.dedup_key
        );
        digest := sha256(convert_to(message.dedup_key, 'UTF8'));
        is_new := digest IS NULL OR (digest <> ALL (digests) IS NOT FALSE AND clientmgr.is_new_key(topic, digest));
        answers := answers || is_new;
        CONTINUE WHEN NOT is_new;
        host_ids := host_ids || coalesce(message.tenant, '');
        user_ids := user_ids || coalesce(message.key, '');
        payloads := payloads || body;
        attributes := attributes || clientmgr.stamped(topic, coalesce(message.attributes, '{}'));
        deliver_ats := deliver_ats || when_due;
        digests := digests || digest;
    END LOOP;
    IF cardinality(host_ids) > 0 THEN
        PERFORM clientmgr.stage_messages(topic, host_ids, user_ids, payloads, attributes, deliver_ats, digests);
    END IF;
    RETURN answers;
END
$$;

REVOKE EXECUTE ON FUNCTION clientmgr.may_publish (text), clientmgr.check_topic (text),
    clientmgr.is_new_key (text, bytea), clientmgr.stamped (text, jsonb),
    clientmgr.publish_checked (text, bytea, text, text, jsonb, timestamptz, text),
    clientmgr.publish (text, jsonb, text, text, jsonb, timestamptz, text),
    clientmgr.publish_bytes (text, bytea, text, text, jsonb, timestamptz, text),
    clientmgr.publish_batch (text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION clientmgr.publish (text, jsonb, text, text, jsonb, timestamptz, text),
    clientmgr.publish_bytes (text, bytea, text, text, jsonb, timestamptz, text),
    clientmgr.publish_batch (text, jsonb) TO clientmgr_writer;
GRANT SELECT ON clientmgr.publish_rights TO clientmgr_writer, clientmgr_reader;
