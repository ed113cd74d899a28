"""Guessing passwords: from one address, of many names, from many addresses, and what the audit log learns of it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clientmgr_dashboard.access import attempts, authentication
from clientmgr_dashboard.access.attempts import Attempts, FailureReport, TooManyAttemptsError
from clientmgr_dashboard.access.authentication import COOKIE, DEVICE_COOKIE
from tests.dashboard.house import PASSWORDS, House, serving, write_users
from tests.waiting import eventually

MALLORYS, ALICES = "198.51.100.1", "203.0.113.5"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def guess(tried: Attempts, name: str, address: str, times: int = 1, device: str = "") -> list[FailureReport]:
    found = []
    for _ in range(times):
        tried.begin(name, address, device)
        if report := tried.failed(name, address, exists=True):
            found.append(report)
    return found


def test_guesses_of_a_name_shut_out_the_one_who_guesses_and_not_the_person() -> None:
    tried = Attempts(Clock())
    guess(tried, "alice", MALLORYS, attempts.PER_PAIR)
    with pytest.raises(TooManyAttemptsError):
        tried.begin("alice", MALLORYS, "")
    tried.begin("alice", ALICES, "")


def test_many_names_from_one_address_are_spraying() -> None:
    tried = Attempts(Clock())
    for number in range(attempts.PER_ADDRESS):
        guess(tried, f"user{number}", MALLORYS)
    with pytest.raises(TooManyAttemptsError):
        tried.begin("one more", MALLORYS, "")
    tried.begin("one more", ALICES, "")


def test_many_addresses_against_one_name_become_slow_and_the_person_still_gets_in() -> None:
    clock = Clock()
    tried = Attempts(clock)
    tried.begin("alice", ALICES, "")
    tried.succeeded("alice", ALICES, "")
    taken = 0
    for number in range(400):
        with contextlib.suppress(TooManyAttemptsError):
            guess(tried, "alice", f"10.0.{number // 200}.{number % 200}")
            taken += 1
        clock.now += 0.1
    assert taken <= attempts.PER_NAME + 40 / attempts.BETWEEN_STRANGERS_S + 1
    tried.begin("alice", ALICES, "")
    tried.begin("alice", "192.0.2.200", "the mark of her browser")
    clock.now += attempts.BETWEEN_STRANGERS_S
    tried.begin("alice", "192.0.2.201", "")


def test_after_a_while_all_is_forgiven() -> None:
    clock = Clock()
    tried = Attempts(clock)
    guess(tried, "alice", MALLORYS, attempts.PER_PAIR)
    clock.now += attempts.WINDOW_S + 1
    tried.begin("alice", MALLORYS, "")


def test_reports_are_few_however_many_guesses_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "PER_PAIR", 10**9)
    monkeypatch.setattr(attempts, "PER_ADDRESS", 10**9)
    monkeypatch.setattr(attempts, "PER_NAME", 10**9)
    tried = Attempts(Clock())
    assert [one.failures for one in guess(tried, "alice", MALLORYS, 2000)] == [1, 10, 100, 1000]
    reports = [one for number in range(5000) for one in guess(tried, "alice", f"10.1.{number // 250}.{number % 250}")]
    assert len(reports) < attempts.REPORTS_AN_HOUR


@pytest.fixture
def proxied(house: House, tmp_path: Path) -> Iterator[str]:
    """A dashboard behind a proxy, which is this test."""
    changed = {"dashboard_users_file": str(write_users(tmp_path)), "dashboard_trusted_proxies": "127.0.0.1"}
    with serving(house.settings.model_copy(update=changed)) as address:
        yield address


def attempt(
    address: str, name: str, password: str, client: str, cookies: dict[str, str] | None = None
) -> httpx.Response:
    form = {"name": name, "password": password}
    return httpx.post(f"{address}/sign-in", data=form, headers={"X-Forwarded-For": client}, cookies=cookies, timeout=30)


def test_an_attacker_elsewhere_does_not_lock_anybody_out_and_is_audited(house: House, proxied: str) -> None:
    before = len(house.audited("dashboard.sign-in-failed"))
    answers = [attempt(proxied, "vera", "wrong", MALLORYS) for _ in range(attempts.PER_PAIR + 1)]
    assert [one.status_code for one in answers] == [401] * attempts.PER_PAIR + [429]
    assert int(answers[-1].headers["retry-after"]) > 0
    # A header that a stranger adds before what the proxy saw changes nothing.
    assert attempt(proxied, "vera", "wrong", f"8.8.8.8, {MALLORYS}").status_code == 429
    signed_in = attempt(proxied, "vera", PASSWORDS["vera"], ALICES)
    assert signed_in.status_code == 303
    assert {COOKIE, DEVICE_COOKIE} <= set(signed_in.cookies)
    rows = eventually(
        lambda: house.audited("dashboard.sign-in-failed")[before:][1:] and house.audited("dashboard.sign-in-failed"),
        "the failures are in the audit log",
    )[before:]
    assert [(row[2], row[3]["user"], row[3]["address"], row[3]["failures"]) for row in rows] == [
        ("refused", "vera", MALLORYS, 1),
        ("refused", "vera", MALLORYS, 10),
    ]


def test_a_known_browser_gets_in_while_its_owner_is_under_attack(proxied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = attempt(proxied, "otto", PASSWORDS["otto"], ALICES).cookies[DEVICE_COOKIE]
    monkeypatch.setattr(attempts, "PER_NAME", 3)
    for number in range(4):
        attempt(proxied, "otto", "wrong", f"198.51.100.{number + 10}")
    elsewhere = "192.0.2.44"
    assert attempt(proxied, "otto", PASSWORDS["otto"], elsewhere).status_code == 429
    assert attempt(proxied, "otto", PASSWORDS["otto"], elsewhere, {DEVICE_COOKIE: device}).status_code == 303
    assert attempt(proxied, "vera", PASSWORDS["vera"], elsewhere, {DEVICE_COOKIE: device}).status_code == 303
    assert attempt(proxied, "otto", "wrong", "192.0.2.45", {DEVICE_COOKIE: f"{device}x"}).status_code == 429


def test_an_unknown_name_is_not_told_it_may_be_a_password(house: House, proxied: str) -> None:
    before = len(house.audited("dashboard.sign-in-failed"))
    assert attempt(proxied, "my-secret-password", "x", "198.51.100.77").status_code == 401
    row = eventually(lambda: house.audited("dashboard.sign-in-failed")[before:], "the failure is in the audit log")[0]
    assert row[3]["user"] == "(no such user)"
    assert "my-secret-password" not in str(row)


def test_more_passwords_than_can_be_checked_are_refused_at_once(proxied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(authentication, "PASSWORDS_WAITING", 6)
    monkeypatch.setattr(authentication, "is_password", lambda *_: release.wait(20) and False)
    answers: list[httpx.Response] = []

    def guess_once(number: int) -> None:
        answers.append(attempt(proxied, f"user{number}", "wrong", f"198.51.101.{number}"))

    threads = [threading.Thread(target=guess_once, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: [one.status_code for one in answers] == [503] * 7, "all but one are refused")
    assert all(one.headers["retry-after"] == "1" for one in answers)
    release.set()
    for thread in threads:
        thread.join()
    assert sorted(one.status_code for one in answers) == [401] + [503] * 7
