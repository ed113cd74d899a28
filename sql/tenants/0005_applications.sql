-- What customers have configured for their applications: it counts where a message or a request does not say it itself.
CREATE TABLE clientmgr.applications (
    customer_id bigint NOT NULL REFERENCES clientmgr.tenants,
    application_code text NOT NULL CHECK (octet_length(application_code) BETWEEN 1 AND 512),
    apple_topic text, -- null: messages for Apple's devices have to name it
    web_origins text[] NOT NULL DEFAULT '{}', -- web pages that browsers may send from; none: no web page may
    default_language text, -- null: messages have to name it, or there is no default
    updated_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (customer_id, application_code)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON clientmgr.applications TO clientmgr_writer;
GRANT SELECT ON clientmgr.applications TO clientmgr_ddl, clientmgr_reader;
