"""Whose connection it is behind proxies: nothing counts that somebody may have made up."""

import pytest

from clientmgr.base.errors import SettingsError
from clientmgr.base.forwarded import client_address, counted_as, trusted_networks

TRUSTED = trusted_networks("PROXIES", "10.0.0.0/8, 192.0.2.1,2001:db8::/32")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("203.0.113.5", "", "203.0.113.5"),
        ("203.0.113.5", "198.51.100.1", "203.0.113.5"),
        ("10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "made up, 198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "127.0.0.1, 198.51.100.1", "198.51.100.1"),
        ("10.1.2.3", "198.51.100.1, 10.9.9.9", "198.51.100.1"),
        ("10.1.2.3", "198.51.100.1:4711", "198.51.100.1"),
        ("10.1.2.3", "[2001:abc::1]:4711", "2001:abc::1"),
        ("10.1.2.3", "1.1.1.1, 198.51.100.1,192.0.2.1", "198.51.100.1"),
        *(("10.1.2.3", nonsense, "10.1.2.3") for nonsense in ("nonsense", "1.2.3", "for=1.2.3.4", "\x00", ",")),
        ("10.1.2.3", "", "10.1.2.3"),
        ("::ffff:10.1.2.3", "198.51.100.1", "198.51.100.1"),
        ("2001:db8::1", "198.51.100.1", "198.51.100.1"),
        ("", "198.51.100.1", ""),
    ],
)
def test_the_client_is_the_last_that_is_no_proxy_of_ours(peer: str, forwarded_for: str, address: str) -> None:
    assert client_address(peer, forwarded_for, TRUSTED) == address


def test_without_trusted_proxies_the_peer_counts() -> None:
    assert client_address("127.0.0.1", "198.51.100.1", trusted_networks("PROXIES", "")) == "127.0.0.1"


@pytest.mark.parametrize("text", ["nginx", "10.0.0.1/8", "10.0.0.0/33"])
def test_what_is_no_network_is_refused_by_the_setting_s_name(text: str) -> None:
    with pytest.raises(SettingsError, match="PROXIES"):
        trusted_networks("PROXIES", text)


def test_an_ipv6_network_counts_as_one_client() -> None:
    assert counted_as("2001:db8::1") == counted_as("2001:db8::ffff:1") != counted_as("2001:db8:0:1::1")
    assert counted_as("::ffff:192.0.2.1") == counted_as("192.0.2.1") == "192.0.2.1"
