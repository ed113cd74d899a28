"""What the gateway refuses to start with: open to others, tokens without TLS, files that are wrong or not private."""

import subprocess
import sys
from pathlib import Path

import pytest

from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import ensure_private, write_private
from clientmgr.base.settings import load_settings
from clientmgr.broker.gateway import protection
from clientmgr.broker.gateway.identities import Identities, Patterns, digest_of, new_token
from clientmgr.broker.gateway.names import Names
from tests.gateway.credentials import Authority, identities_file

NAMES = Names("client-manager")
EVERYWHERE = "0.0.0.0"  # noqa: S104
ALL = 'tenants = "all"'


def check(**settings: object) -> None:
    chosen = load_settings(**{name: str(value) for name, value in settings.items()})
    protection.server_credentials(chosen)
    protection.access(chosen, NAMES)


def refused(match: str) -> "pytest.RaisesExc[SettingsError]":
    return pytest.raises(SettingsError, match=match)


@pytest.mark.parametrize("host", [EVERYWHERE, "", "192.0.2.1", "gateway.example", "[::]"])
def test_an_address_that_others_reach_wants_identities_and_tls(host: str, tmp_path: Path) -> None:
    pair, identities = Authority(tmp_path).server_pair(), identities_file(tmp_path, crm=ALL)
    with refused("nothing asks them who they are before the Pub/Sub gateway"):
        check(pubsub_gateway_host=host)
    tls = {"pubsub_gateway_tls_certificate": pair.certificate, "pubsub_gateway_tls_key": pair.key}
    with refused("nothing asks them who they are"):
        check(pubsub_gateway_host=host, **tls)
    with refused("PUBSUB_GATEWAY_TLS_BY_PROXY"):
        check(pubsub_gateway_host=host, pubsub_gateway_identities=identities)
    check(pubsub_gateway_host=host, pubsub_gateway_identities=identities, **tls)
    check(pubsub_gateway_host=host, pubsub_gateway_identities=identities, pubsub_gateway_tls_by_proxy=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_on_this_machine_alone_nothing_is_needed(host: str) -> None:
    check(pubsub_gateway_host=host)


def test_the_command_says_why_and_ends_with_code_2(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "clientmgr", "pubsub-gateway", "--host", EVERYWHERE, "--port", "0"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "PUBSUB_GATEWAY_IDENTITIES" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_files_of_tls_are_refused_by_name(tmp_path: Path) -> None:
    pair = Authority(tmp_path).server_pair()
    other = Authority(tmp_path).pair("other")
    certificate, key = "pubsub_gateway_tls_certificate", "pubsub_gateway_tls_key"
    with refused("PUBSUB_GATEWAY_TLS_KEY: expected a file"):
        check(**{certificate: pair.certificate})
    with refused("PUBSUB_GATEWAY_TLS_CERTIFICATE: expected a file"):
        check(**{key: pair.key})
    with refused("missing.pem can't be read"):
        check(**{certificate: tmp_path / "missing.pem", key: pair.key})
    with refused("are no certificate and its key"):
        check(**{certificate: pair.certificate, key: other.key})
    with refused("PUBSUB_GATEWAY_CLIENT_CA: certificates of clients need TLS"):
        check(pubsub_gateway_client_ca=pair.certificate)
    with refused("has no certificate"):
        check(**{certificate: pair.certificate, key: pair.key, "pubsub_gateway_client_ca": pair.key})
    with refused("no PUBSUB_GATEWAY_IDENTITIES says"):
        check(**{certificate: pair.certificate, key: pair.key, "pubsub_gateway_client_ca": pair.certificate})
    pair.key.chmod(0o640)
    with refused("PUBSUB_GATEWAY_TLS_KEY: others may read or change"):
        check(**{certificate: pair.certificate, key: pair.key})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no identity"),
        ("[crm", "is no TOML"),
        ("[crm]\ntenants = 'all'", "expected tokens or a certificate"),
        ("[crm]\ncertificate = 'crm'", "tenants"),
        ("[crm]\ntenants = 'some'\ncertificate = 'crm'", 'expected "all" or a list'),
        ("[crm]\ntenants = ['1001']\ncertificate = 'crm'", "tenants"),
        ("[crm]\ntenants = 'all'\ntokens = [{ sha256 = 'crm-token' }]", "64 hexadecimal digits"),
        ("[crm]\ntenants = 'all'\ntokens = [{ token = 'crm-token' }]", "unknown field `token`"),
        ("[crm]\ntenants = 'all'\ncertificate = 'crm'\npublsh = ['*']", "publsh"),
        ("['a b']\ntenants = 'all'\ncertificate = 'crm'", "letters, digits"),
        ("[a]\ntenants = 'all'\ncertificate = 'c'\n[b]\ntenants = 'all'\ncertificate = 'c'", "the same credential"),
    ],
)
def test_a_wrong_identities_file_is_refused_with_the_place(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "identities.toml"
    write_private(file, text)
    with refused(f"PUBSUB_GATEWAY_IDENTITIES: .*identities.toml.*{reason}"):
        check(pubsub_gateway_identities=file)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = identities_file(tmp_path, crm=ALL)
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        with refused(f"PUBSUB_GATEWAY_IDENTITIES: others may read or change {file} .mode {mode:04o}"):
            check(pubsub_gateway_identities=file)
    file.chmod(0o600)
    ensure_private(file, "PUBSUB_GATEWAY_IDENTITIES")
    check(pubsub_gateway_identities=file)


def test_certificates_without_who_signs_them_are_refused(tmp_path: Path) -> None:
    file = identities_file(tmp_path, crm=f'certificate = "crm"\n{ALL}')
    with refused("PUBSUB_GATEWAY_CLIENT_CA: expected who signs"):
        check(pubsub_gateway_identities=file)


def test_the_command_makes_a_token_and_its_entry(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "clientmgr", "pubsub-gateway", "token", "crm", "--tenants", "1001,7"]
    made = subprocess.run([*command, "--publish", "a-*"], capture_output=True, text=True, timeout=60, check=True)
    token, file = made.stderr.strip(), tmp_path / "identities.toml"
    write_private(file, made.stdout)
    identity = Identities(file).of_token(digest_of(token))
    assert identity is not None
    assert identity.name == "crm"
    assert identity.tenants == frozenset({"1001", "7"})
    assert identity.publish == Patterns(("a-*",))
    assert not identity.account_deletion
    assert token not in made.stdout
    assert new_token() != new_token()


def test_patterns_stop_at_a_slash_and_know_nothing_but_the_star() -> None:
    assert Patterns(("a-*",)).cover("a-b.c")
    assert not Patterns(("a-*",)).cover("xa-b")
    assert not Patterns(("a.c",)).cover("abc")
    assert not Patterns(("*",)).cover("projects/elsewhere/topics/a")
    assert Patterns(("projects/elsewhere/topics/*",)).cover("projects/elsewhere/topics/a")
