"""Signs requests to DynamoDB by AWS's Signature Version 4. Pure: no I/O, no clock of its own.

botocore's signer serves every service and request and works from nothing each time. Our requests differ in their body
alone, so whatever holds for a day or a second is computed once. A test compares the two signers.
"""

import hashlib
import hmac
import time
from typing import NamedTuple

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "dynamodb"
CONTENT_TYPE = "application/x-amz-json-1.0"


class Keys(NamedTuple):
    """What AWS gave somebody to sign with. `token` is None unless they are temporary."""

    access_key: str
    secret_key: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Keys({self.access_key!r}, …)"


class Signer:
    """Makes the heads of requests for one operation of one endpoint, as one holder of keys."""

    def __init__(self, keys: Keys, region: str, host: str, path: str, operation: str) -> None:
        self.keys = keys
        self._region = region
        self._path = path
        # In the order of their names: AWS signs them so.
        signed = {"content-type": CONTENT_TYPE, "host": host, "x-amz-date": "{date}"}
        if keys.token is not None:
            signed["x-amz-security-token"] = keys.token
        signed["x-amz-target"] = f"DynamoDB_20120810.{operation}"
        self._headers = signed
        self._names = ";".join(signed)
        self._second = -1
        self._day = ""

    def head(self, body: bytes, now: float) -> bytes:
        """Everything of the request that comes before its body."""
        if int(now) != self._second:
            self._prepare(int(now))
        canonical = self._canonical.copy()
        canonical.update(hashlib.sha256(body).hexdigest().encode())
        to_sign = self._to_sign + canonical.hexdigest().encode()
        signature = hmac.digest(self._key, to_sign, "sha256").hex().encode()
        return b"%b%d\r\nAuthorization: %b%b\r\n\r\n" % (self._head, len(body), self._authorization, signature)

    def _prepare(self, second: int) -> None:
        """What is the same for all requests of a second."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        scope = f"{date[:8]}/{self._region}/{SERVICE}/aws4_request"
        if date[:8] != self._day:
            self._day = date[:8]
            self._key = self._key_of_the_day()
        headers = self._headers | {"x-amz-date": date}
        canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
        self._canonical = hashlib.sha256(f"POST\n{self._path}\n\n{canonical}\n{self._names}\n".encode())
        self._to_sign = f"{ALGORITHM}\n{date}\n{scope}\n".encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        # Not signed: what a proxy may change. `identity`, because we read no packed answers.
        self._head = f"POST {self._path} HTTP/1.1\r\n{lines}Accept-Encoding: identity\r\nContent-Length: ".encode()
        credential = f"Credential={self.keys.access_key}/{scope}"
        self._authorization = f"{ALGORITHM} {credential}, SignedHeaders={self._names}, Signature=".encode()
        self._second = second

    def _key_of_the_day(self) -> bytes:
        key = f"AWS4{self.keys.secret_key}".encode()
        for part in (self._day, self._region, SERVICE, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key
