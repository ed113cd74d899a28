"""Every operation there is: what the API serves, and the OpenAPI document tells."""

from typing import Final

from msgspec import Struct

from clientmgr.tenant_metrics.tenants import HistoryPoint, TenantRow
from clientmgr_dashboard.access.users import Role
from clientmgr_dashboard.operations import (
    dead_letters,
    devices,
    error_messages,
    mapping,
    overview,
    switches,
    tenants,
    topics,
)
from clientmgr_dashboard.operations.interface import Newest, Nothing, Operation, Page, Run


def _get(path: str, summary: str, request: type[Struct], answer: object, run: Run) -> Operation:
    return Operation("GET", path, summary, request, answer, run)


def _post(
    path: str, summary: str, request: type[Struct], answer: object, run: Run, *, needs: Role = Role.OPERATOR
) -> Operation:
    return Operation("POST", path, summary, request, answer, run, needs)


OPERATIONS: Final = (
    _get("/overview", "Everything at a glance.", Nothing, overview.Overview, overview.overview),
    _get("/tenants", "The tenants.", tenants.TenantsRequest, Page[TenantRow], tenants.list_tenants),
    _get(
        "/tenants/{customerId}",
        "All that is known of a tenant.",
        tenants.TenantRequest,
        tenants.TenantDetail,
        tenants.show_tenant,
    ),
    _get(
        "/tenants/{customerId}/history",
        "A tenant's numbers over time.",
        tenants.HistoryRequest,
        Newest[HistoryPoint],
        tenants.tenant_history,
    ),
    _get(
        "/audit/{customerId}",
        "A customer's audit trail.",
        tenants.AuditRequest,
        Newest[tenants.AuditRow],
        tenants.audit_trail,
    ),
    _get(
        "/audit/{customerId}/verification",
        "Whether a customer's audit trail is as it was written.",
        tenants.VerificationRequest,
        tenants.Verification,
        tenants.verify_audit,
    ),
    _get(
        "/devices/by-contact",
        "The devices of a contact.",
        devices.ContactRequest,
        Page[devices.DeviceRow],
        devices.find_by_contact,
    ),
    _get(
        "/devices/by-client",
        "The devices with a client id, one of each application.",
        devices.ClientRequest,
        Page[devices.DeviceRow],
        devices.find_by_client,
    ),
    _post(
        "/devices/by-token",
        "The devices that hold a push token or web push endpoint.",
        devices.TokenRequest,
        Page[devices.DeviceRow],
        devices.find_by_token,
        needs=Role.VIEWER,
    ),
    _get(
        "/devices/one",
        "All that is known of a device.",
        devices.DeviceRequest,
        devices.DeviceDetail,
        devices.show_device,
    ),
    _post(
        "/devices/reveal",
        "A device with its secrets. Recorded in the audit log.",
        devices.RevealRequest,
        devices.DeviceDetail,
        devices.reveal_device,
    ),
    _get(
        "/devices/mapping",
        "What the device mapper would do with a sample message for a contact.",
        mapping.MappingRequest,
        mapping.MappingExplanation,
        mapping.explain_mapping,
    ),
    _get("/topics", "Topics, readers and lag.", topics.TopicsRequest, Page[topics.TopicRow], topics.list_topics),
    _get(
        "/dead-letters",
        "Messages that could not be handled.",
        dead_letters.LettersRequest,
        Newest[dead_letters.LetterRow],
        dead_letters.list_letters,
    ),
    _get(
        "/dead-letters/{id}",
        "A dead letter with its contents.",
        dead_letters.LetterRequest,
        dead_letters.LetterDetail,
        dead_letters.show_letter,
    ),
    _post(
        "/dead-letters/reveal",
        "A dead letter with the secrets in it. Recorded in the audit log.",
        dead_letters.LetterRequest,
        dead_letters.LetterDetail,
        dead_letters.reveal_letter,
    ),
    _post(
        "/dead-letters/preview",
        "How many letters an action would be about.",
        dead_letters.ChosenLetters,
        dead_letters.LettersPreview,
        dead_letters.preview_letters,
        needs=Role.VIEWER,
    ),
    _post(
        "/dead-letters/replay",
        "Deliver dead letters again.",
        dead_letters.ChosenLetters,
        dead_letters.LettersReplayed,
        dead_letters.replay_letters,
    ),
    _post(
        "/dead-letters/drop",
        "Delete dead letters for good.",
        dead_letters.ChosenLetters,
        dead_letters.LettersDropped,
        dead_letters.drop_letters,
    ),
    _get(
        "/error-topics",
        "The topics of what daemons gave up on.",
        error_messages.ErrorTopicsRequest,
        Page[error_messages.ErrorTopicRow],
        error_messages.list_error_topics,
    ),
    _get(
        "/error-messages",
        "Messages of an error topic.",
        error_messages.ErrorMessagesRequest,
        Newest[error_messages.ErrorMessageRow],
        error_messages.list_error_messages,
    ),
    _post(
        "/error-messages/replay",
        "Publish messages of an error topic again.",
        error_messages.ReplayErrorsRequest,
        error_messages.ErrorsHandled,
        error_messages.replay_error_messages,
    ),
    _post(
        "/error-messages/drop",
        "Set messages of an error topic aside.",
        error_messages.DropErrorsRequest,
        error_messages.ErrorsHandled,
        error_messages.drop_error_messages,
    ),
    _get("/flippers", "What is set.", switches.FlippersRequest, Page[tenants.FlipperState], switches.list_flippers),
    _post(
        "/flippers",
        "Turn a flipper on or off, or unset it.",
        switches.FlipRequest,
        switches.Changed,
        switches.change_flipper,
    ),
    _get(
        "/exclusions",
        "Customers whose orphans are never deleted.",
        switches.ExclusionsRequest,
        Page[switches.ExclusionRow],
        switches.list_excluded,
    ),
    _post(
        "/exclusions",
        "Keep a customer's orphans.",
        switches.ExcludeRequest,
        switches.Changed,
        switches.exclude_customer,
    ),
    _post(
        "/exclusions/remove",
        "Let a customer's orphans be deleted again.",
        switches.IncludeRequest,
        switches.Changed,
        switches.include_customer,
    ),
)
