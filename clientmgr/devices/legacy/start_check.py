"""Whether the legacy store can be used, found out when a process starts that needs it.

The check is a query for a contact that nobody has: it takes no other right than the queries to come. A store that is
set up wrongly is an error that says what to do. One that is only away or busy is not: messages that need it wait.
"""

import ssl
from typing import Final

from clientmgr.base.customer_ids import CustomerId
from clientmgr.base.errors import SettingsError, is_transient
from clientmgr.base.logs import get_logger
from clientmgr.base.settings import Settings
from clientmgr.devices.legacy.dynamodb import DynamoDbAccess
from clientmgr.devices.legacy.http_answers import ForeignAnswerError
from clientmgr.devices.legacy.queries import QueryClient

log = get_logger(__name__)

NO_CUSTOMER, NO_CONTACT = CustomerId(0), 0
HOW_TO_DO_WITHOUT: Final = "If there is no legacy store, set LEGACY_STORE=none"

_KEYS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source of credentials that boto3 knows"
_ADVICE: Final = {
    "NoRegionError": "set AWS_REGION, or DYNAMODB_ENDPOINT for a server that is not AWS's",
    "InvalidRegionError": "set AWS_REGION to a region of AWS",
    "NoCredentialsError": _KEYS,
    "PartialCredentialsError": _KEYS,
    "ProfileNotFound": "set AWS_PROFILE to a profile that there is",
    "ResourceNotFoundException": "set DYNAMODB_DEVICES_TABLE to a table of this region and account",
    "ValidationException": "DYNAMODB_DEVICES_TABLE must name a table with the keys contactKey and deviceKey, both text",
    "AccessDeniedException": "allow these credentials dynamodb:Query on the table of DYNAMODB_DEVICES_TABLE",
    "UnrecognizedClientException": f"AWS does not know these credentials: {_KEYS}",
    "InvalidSignatureException": f"the secret does not belong to the key, or our clock is wrong: {_KEYS}",
    "MissingAuthenticationTokenException": _KEYS,
    "IncompleteSignatureException": _KEYS,
    "ExpiredTokenException": f"these credentials are no longer valid: {_KEYS}",
}
"""By the name of boto3's error or of AWS's code."""
_MAY_PASS: Final = {"CredentialRetrievalError", "MetadataRetrievalError", "InstanceMetadataTimeoutError"}
"""Who hands out credentials was asked and did not answer."""


async def check_legacy_store(settings: Settings) -> None:
    """Raise `SettingsError` where the mapper is to read a store that it can't read. What may pass is logged."""
    if not settings.has_legacy_store:
        log.info("no legacy store: devices come from PostgreSQL alone", setting="LEGACY_STORE")
    if not settings.mapper_reads_legacy_store:
        return
    client = QueryClient(DynamoDbAccess.from_settings(settings, attempts=1))
    try:
        await client.devices(NO_CUSTOMER, NO_CONTACT, "#")
    except Exception as error:
        if (advice := advice_on(error)) is not None:
            where = settings.dynamodb_endpoint or "AWS"
            text = " ".join(str(error).split())
            raise SettingsError(
                f"LEGACY_STORE=dynamodb, but DynamoDB ({where}, table {settings.dynamodb_devices_table}) can't be "
                f"read: {text}. To mend it, {advice}. {HOW_TO_DO_WITHOUT}."
            ) from error
        log.warning("the legacy store does not answer now: messages that need it wait", error=str(error))
    finally:
        client.close()


def advice_on(error: Exception) -> str | None:
    """What to do about an error that waiting does not mend. None: it may pass."""
    if isinstance(error, ForeignAnswerError):
        return "set DYNAMODB_ENDPOINT to a server that speaks DynamoDB's protocol"
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return "set AWS_CA_BUNDLE to a file with the certificate of who signed the server's"
    if is_transient(error) or type(error).__name__ in _MAY_PASS:
        return None
    response = getattr(error, "response", {})
    known = _ADVICE.get(response.get("Error", {}).get("Code", "")) or _ADVICE.get(type(error).__name__)
    return known or "see that DYNAMODB_ENDPOINT and AWS_REGION name the server, and that it accepts our queries"
