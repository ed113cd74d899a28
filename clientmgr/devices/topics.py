"""The names of the topics that carry what happens to devices, as the contracts spell them."""

WRITER = "client-manager.writer"
REPUBLISHER = "client-manager.republisher"
WRITER_ERRORS = "client-manager.writer-errors"
PUSH_TOKEN_STATUS = "client-manager.push-token-status"  # noqa: S105  # a topic
WEB_PUSH_TOKEN_STATUS = "client-manager.web-push-token-status"  # noqa: S105  # a topic
CONTACT_DELETION = "client-manager.contact-deletion"
CONTACT_DELETION_ERRORS = "client-manager.contact-deletion-errors"
