"""A login for each role: what they are called, their URLs, and how they are made on a server that we do not run.

The roles log in themselves. None is a superuser, inherits anything or is a member of anything, so a session has nothing
to fall back to. Passwords are random and kept in DATA_DIR. The embedded server makes its own: `local/embedded`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import Connection, sql

from clientmgr.base.database import Database, Role
from clientmgr.base.errors import SettingsError
from clientmgr.base.private_files import kept_secret, write_private
from clientmgr.base.settings import Settings

DAGSTER: Final = "clientmgr_dagster"
"""Owns the schema that Dagster keeps its own tables in, and has no right on ours."""
DAGSTER_SCHEMA: Final = "dagster"

PUBLISHER: Final = "clientmgr_publisher"
"""Logs in nowhere. Logins of others that may publish by SQL, and do nothing else, are its members."""

LOGINS: Final[Mapping[str, str]] = {
    Role.DDL: "database_ddl_url",
    Role.WRITER: "database_writer_url",
    Role.READER: "database_reader_url",
    DAGSTER: "dagster_database_url",
}
"""Each login, and the setting that says where and with which password it logs in."""

_OWN_CREDENTIALS: Final = ("user", "password", "passfile", "options", "sslcert", "sslkey", "sslpassword")
"""What a URL's query may say of its login and not of its server."""

_TOO_MIGHTY: Final = """
SELECT r.rolname::text, coalesce(
    (SELECT 'is a member of ' || m.roleid::regrole FROM pg_auth_members AS m WHERE m.member = r.oid LIMIT 1),
    'has rights of a superuser, or may make roles or databases'
)
FROM pg_roles AS r
WHERE r.rolname = ANY(%s) AND (
    r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls
    OR EXISTS (SELECT FROM pg_auth_members AS m WHERE m.member = r.oid)
)
"""


def url_of(login: str, password: str, owners_url: str) -> str:
    """Where the owner's URL leads, as another login. Dagster's finds its tables in its own schema."""
    parts = urlsplit(owners_url)
    hosts = parts.netloc.rpartition("@")[2]
    query = [(name, value) for name, value in parse_qsl(parts.query) if name not in _OWN_CREDENTIALS]
    if login == DAGSTER:
        query.append(("options", f"-csearch_path={DAGSTER_SCHEMA}"))
    netloc = f"{quote(login, safe='')}:{quote(password, safe='')}@{hosts}"
    return urlunsplit(parts._replace(netloc=netloc, query=urlencode(query, quote_via=quote)))


def made_logins(settings: Settings, *, anew: bool = False) -> Settings:
    """Settings with a login for each role that has none yet, on the server of DATABASE_URL. For the owner.

    A password that somebody else has chosen is not changed, unless `anew`.
    """
    missing = [login for login, setting in LOGINS.items() if anew or not getattr(settings, setting)]
    if not missing:
        return settings
    urls = {login: url_of(login, _password(settings.data_dir, login), settings.database_url) for login in missing}
    with Database.from_settings(settings).connect(Role.OWNER, autocommit=True) as connection:
        for login in missing:
            if anew or not _logs_in(urls[login]):
                _let_in(connection, login, _password(settings.data_dir, login), anew=anew)
        refuse_mighty(connection, missing)
    return settings.model_copy(update={LOGINS[login]: url for login, url in urls.items()})


def write_urls(settings: Settings, file: Path) -> None:
    """The logins' URLs as lines of an environment file, for the owner of the file alone."""
    write_private(file, "".join(f"{name.upper()}={getattr(settings, name)}\n" for name in LOGINS.values()))


def set_password(connection: Connection[Any], login: str, password: str) -> None:
    """Let a role log in. The server is told a verifier, so that no log of statements has the password."""
    verifier = connection.pgconn.encrypt_password(password.encode(), login.encode(), b"scram-sha-256").decode()
    connection.execute(
        sql.SQL("ALTER ROLE {} LOGIN NOINHERIT PASSWORD {}").format(sql.Identifier(login), sql.Literal(verifier))
    )


def refuse_mighty(connection: Connection[Any], logins: Iterable[str]) -> None:
    """Refuse logins that can do or become more than their role."""
    for login, why in connection.execute(_TOO_MIGHTY, (list(logins),)):
        raise SettingsError(f"PostgreSQL: the login {login} {why}: take that from it")


def _password(folder: Path, login: str) -> str:
    return kept_secret(folder, f"{login}_password")


def _logs_in(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.OperationalError:
        return False
    return True


def _let_in(connection: Connection[Any], login: str, password: str, *, anew: bool) -> None:
    setting = LOGINS[login].upper()
    found = connection.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = %s", (login,)).fetchone()
    if found == (True,) and not anew:
        raise SettingsError(
            f"{setting}: not set, and the password of {login} is not the one in DATA_DIR. "
            "Set it, or give all roles new passwords: `clientmgr migrate --logins`."
        )
    try:
        set_password(connection, login, password)
    except psycopg.errors.InsufficientPrivilege as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(
            f"{setting}: not set, and DATABASE_URL's login may not let {login} log in ({reason}). "
            f"Have an administrator run ALTER ROLE {login} LOGIN NOINHERIT PASSWORD …, and set {setting}."
        ) from None
