"""Keys of the intake, by the dashboard's forms: shown once, rotated, and revoked only by their typed id."""

import re

from tests.dashboard.house import QUIET, House, Visit

PAGE = "/intake-keys"


def test_a_key_is_made_shown_once_rotated_and_revoked(house: House, visit: Visit) -> None:
    made = visit.submit(PAGE, {"customerId": QUIET, "applicationCode": "A", "name": "web", "kind": "app"}).text
    (key,) = re.findall(r"cmk_[0-9a-f]{12}_[0-9a-f]{64}", made)
    key_id = key.split("_")[1]
    listed = visit.see(PAGE)
    assert key_id in listed
    assert key not in listed

    rotated = visit.submit(f"{PAGE}/rotate", {"keyId": key_id}).text
    assert re.search(r"cmk_[0-9a-f]{12}_[0-9a-f]{64}", rotated)

    assert visit.submit(f"{PAGE}/revoke", {"keyId": key_id, "confirm": "another"}).status_code == 400
    answer = visit.submit(f"{PAGE}/revoke", {"keyId": key_id, "confirm": key_id})
    assert answer.headers["location"] == f"{PAGE}?done=revoked"
    actions = visit.see(f"/tenants/{QUIET}")
    assert all(f"intake_key.{what}" in actions for what in ("created", "rotated", "revoked"))
