"""TLS by the dashboard itself: a certificate that clients check, cookies for it alone, wrong files named."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clientmgr.base.errors import SettingsError
from clientmgr.base.settings import Settings
from clientmgr_dashboard.access.authentication import COOKIE
from tests.dashboard.house import PASSWORDS, House, Visit, serving, write_users


def make_certificate(folder: Path, name: str = "dashboard") -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    key_file.chmod(0o600)
    return certificate_file, key_file


def with_tls(settings: Settings, certificate: Path | str, key: Path | str) -> Settings:
    return settings.model_copy(update={"dashboard_tls_certificate": str(certificate), "dashboard_tls_key": str(key)})


def test_pages_are_served_over_tls_and_the_session_never_leaves_it(house: House, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    users = {"dashboard_users_file": str(write_users(tmp_path))}
    trusting = ssl.create_default_context(cafile=str(certificate))
    with serving(with_tls(house.settings, certificate, key).model_copy(update=users)) as address:
        assert address.startswith("https:")
        with Visit(base_url=address, timeout=30, verify=trusting) as visit:
            answer = visit.post("/sign-in", data={"name": "otto", "password": PASSWORDS["otto"]})
            assert answer.status_code == 303
            cookie = next(value for value in answer.headers.get_list("set-cookie") if value.startswith(COOKIE))
            assert "; secure" in cookie.lower()
            assert "httponly" in cookie.lower()
            assert "otto" in visit.see("/")

        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(address, timeout=30)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(address.replace("https:", "http:"), timeout=30)


def test_files_that_are_no_certificate_with_its_key_are_named(house: House, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    _, another_key = make_certificate(tmp_path, "another")
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nothing of the kind")
    for settings, complaint in [
        (with_tls(house.settings, "missing.pem", key), "DASHBOARD_TLS_CERTIFICATE: missing.pem can't be read"),
        (with_tls(house.settings, certificate, "missing.key"), "DASHBOARD_TLS_KEY: missing.key can't be read"),
        (with_tls(house.settings, nonsense, key), f"{nonsense} and {key} are no PEM certificate"),
        (with_tls(house.settings, certificate, another_key), "KEY_VALUES_MISMATCH"),
        (with_tls(house.settings, "", key), "DASHBOARD_TLS_CERTIFICATE: not set"),
    ]:
        with pytest.raises(SettingsError) as refused, serving(settings):
            pass
        assert complaint in str(refused.value)
