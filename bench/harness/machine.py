"""What machine a result comes from: figures of different machines can't be compared, ratios perhaps."""

import os
import platform
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine, and how busy it was."""

    cores: int
    system: str
    python: str
    load_average: str

    def __str__(self) -> str:
        return f"{self.cores} cores, {self.system}, Python {self.python}, load average {self.load_average}"


def describe_machine() -> Machine:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    system = f"{platform.system()} {platform.machine()}"
    return Machine(os.cpu_count() or 1, system, platform.python_version(), load)
