"""Who can reach what listens at an address: this machine alone, or others too, who must then prove who they are."""

import ipaddress

from clientmgr.base.errors import SettingsError


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def ensure_not_open_to_others(listener: str, host_setting: str, host: str, *, protected: bool, protect_by: str) -> None:
    """Refuse to serve others than this machine where nothing asks them who they are.

    `protect_by`: what to set or make, in words that end the sentence.
    """
    if not protected and not is_loopback(host):
        raise SettingsError(
            f"{host_setting}: {host or 'every address'} can be reached by others, and nothing asks them who they are "
            f"before {listener} serves them; {protect_by}, or listen on 127.0.0.1"
        )
