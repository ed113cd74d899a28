"""Settings: a default, a name and a meaning for each; secrets hidden; a wrong value stops the start by name."""

import pytest

from clientmgr.base.errors import SettingsError
from clientmgr.base.hiding import HIDDEN, hide_password
from clientmgr.base.settings import Settings, load_settings
from tests.keys import TEST_KEY


def test_every_setting_has_a_default_and_a_line_of_help() -> None:
    for name, field in Settings.model_fields.items():
        assert not field.is_required(), name
        assert field.description, name
    assert load_settings().database_url == ""


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("POSTGRES_PORT", "70000", "POSTGRES_PORT: expected less than or equal to 65535, got '70000'"),
        ("POSTGRES_PORT", "abc", "POSTGRES_PORT: expected a valid integer"),
        ("BROKER", "kafka", "BROKER: expected 'postgres' or 'pubsub', got 'kafka'"),
        ("DATABASE_URL", "mysql://x", "DATABASE_URL: expected a URL like postgresql://"),
        ("REDIS_URL", "localhost", "REDIS_URL: expected a URL like redis://"),
        ("SPARK_CONNECT_URL", "spark.internal:15002", "SPARK_CONNECT_URL: expected a URL like sc://"),
        ("SPARK_CONNECT_URL", "sc://spark.internal:15002", "SPARK_CONNECT_URL: expected TLS to a host that is not"),
        ("SPARK_CONNECT_URL", "sc://10.0.0.7/;use_ssl=false", "SPARK_CONNECT_URL: expected TLS to a host that is not"),
        ("TENANT_CONNECTIONS", "0", "TENANT_CONNECTIONS: expected greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, complaint: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sc://127.0.0.1:15002",
        "sc://localhost",
        "sc://[::1]:15002/;user_id=me",
        "sc://spark.internal:15002/;use_ssl=true",
        "sc://spark.internal/;token=abc",
    ],
)
def test_logins_go_to_a_connect_server_on_this_machine_or_encrypted(url: str) -> None:
    assert load_settings(spark_connect_url=url).spark_connect_url == url


def test_a_value_that_is_no_json_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF", "notjson")
    with pytest.raises(SettingsError, match=r"^SPARK_CONF: expected JSON"):
        load_settings()


def test_all_wrong_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTGRES_PORT", "x")
    monkeypatch.setenv("BROKER", "y")
    with pytest.raises(SettingsError, match=r"POSTGRES_PORT.*BROKER"):
        load_settings()


def test_a_password_in_a_wrong_url_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://me:hunter2@host/db")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host:5432/db",
        "postgresql://me@host/db?password=hunter2&sslmode=require",
        "redis://:hunter2@host:6379/0",
        "sc://host:15002/;use_ssl=true;token=hunter2",
        "postgresql://me:hunter2%40x@host/db",
        "postgresql://me:hun@ter2:hunter2@host/db",
    ],
)
def test_passwords_are_hidden_wherever_they_stand(url: str) -> None:
    shown = hide_password(url)
    assert "hunter2" not in shown
    assert HIDDEN in shown
    assert "host" in shown


def test_the_effective_settings_hide_every_secret() -> None:
    settings = load_settings(database_url="postgresql://me:hunter2@h/d", audit_hash_key=f"hunter2{TEST_KEY}")
    shown = {name: value for name, value, _ in settings.effective()}
    assert "hunter2" not in str(shown)
    assert shown["AUDIT_HASH_KEY"] == HIDDEN
    assert set(shown) == {name.upper() for name in Settings.model_fields}


def test_a_child_process_gets_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(database_url="postgresql://me:hunter2@h/d", audit_hash_key=TEST_KEY, tenant_connections=3)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    decided = {"legacy_store": "none"}  # the parent knows what "auto" comes to
    assert load_settings() == settings.model_copy(update=decided)


def test_sparks_own_settings_are_json_and_their_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF", '{"spark.executor.memory": "2g", "spark.hadoop.fs.s3a.secret.key": "hunter2"}')

    settings = load_settings()

    assert settings.spark_conf["spark.hadoop.fs.s3a.secret.key"] == "hunter2"
    shown = {name: value for name, value, _ in settings.effective()}["SPARK_CONF"]
    assert shown == f'{{"spark.executor.memory": "2g", "spark.hadoop.fs.s3a.secret.key": "{HIDDEN}"}}'
    monkeypatch.setenv("SPARK_CONF", settings.environment()["SPARK_CONF"])
    assert load_settings().spark_conf == settings.spark_conf
