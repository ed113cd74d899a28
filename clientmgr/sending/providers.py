"""Which assembler writes for which provider: the registry in contracts, joined with the modules in `assemble/`.

A module there that says `ASSEMBLER = …` is found by itself. A provider without an assembler is an error at start, not
when the first message comes; so is an assembler without a provider.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Final, Protocol, get_args

from msgspec import Struct

from clientmgr.contracts.providers import PROVIDERS, Channel
from clientmgr.sending import assemble
from clientmgr.sending.assemble.interface import Assembler, Delivery


class AssemblerOfProvider(Protocol):
    """The class of an assembler for one provider's devices."""

    provider: str
    request_type: type[Struct]

    def __call__(self, delivery: Delivery) -> Assembler: ...


def _assemblers() -> dict[str, AssemblerOfProvider]:
    found: dict[str, AssemblerOfProvider] = {}
    for module in pkgutil.iter_modules(assemble.__path__, f"{assemble.__name__}."):
        assembler = getattr(importlib.import_module(module.name), "ASSEMBLER", None)
        if assembler is not None:
            found[assembler.provider] = assembler
    wanted = {provider.name for provider in PROVIDERS if provider.token_kinds}
    if wanted != found.keys():
        unmatched = ", ".join(sorted(wanted ^ found.keys()))
        raise LookupError(
            f"in clientmgr/contracts/providers.py or in clientmgr/sending/assemble/, not both: {unmatched}"
        )
    return found


ASSEMBLERS: Final = _assemblers()
"""By provider. Those that deliver to contacts, not to devices, have none here: `StoredAssembler` serves them all."""
ASSEMBLERS_OF_CHANNEL: Final[Mapping[Channel, Mapping[str, AssemblerOfProvider]]] = {
    channel: {one.name: ASSEMBLERS[one.name] for one in PROVIDERS if one.channel == channel and one.token_kinds}
    for channel in get_args(Channel)
}
