"""The certificate of a listener of ours, checked before anything listens."""

import os
import ssl
from pathlib import Path

from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private


def server_tls(certificate_setting: str, certificate: str, key_setting: str, key: str) -> ssl.SSLContext | None:
    """None: no certificate is set. What can't be used is refused by the names of file and setting."""
    if key and not certificate:
        raise SettingsError(f"{certificate_setting}: not set, and {key_setting} is of no use without it")
    if not certificate:
        return None
    for name, file in ((certificate_setting, certificate), (key_setting, key)):
        if file and not os.access(file, os.R_OK):
            raise SettingsError(f"{name}: {file} can't be read")
    # A PEM file may hold both: then the certificate's is the one with the key.
    ensure_private(Path(key or certificate), key_setting if key else certificate_setting)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key or None)
    except (ssl.SSLError, OSError) as error:
        files = certificate if not key else f"{certificate} and {key}"
        raise SettingsError(
            f"{certificate_setting}, {key_setting}: {files} are no PEM certificate with its key ({error})"
        ) from None
    return context
