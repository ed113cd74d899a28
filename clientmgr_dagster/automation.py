"""Whether schedules and sensors run by themselves here. Every one of them is declared with one of these two.

Only where the installation is meant to act: `clientmgr up` and `clientmgr dagster …` say so by DAGSTER_AUTOMATION. In
`dagster dev`, or in an instance that somebody adds this location to, all of them are off until somebody turns them on.
Whatever a person turned on or off in Dagster's UI stays so: Dagster keeps that, and it goes before what is said here.
"""

from typing import Final

import dagster as dg

from clientmgr.base.settings import load_settings

_RUNNING: Final = load_settings().dagster_automation == "running"

SCHEDULES: Final = dg.DefaultScheduleStatus.RUNNING if _RUNNING else dg.DefaultScheduleStatus.STOPPED
SENSORS: Final = dg.DefaultSensorStatus.RUNNING if _RUNNING else dg.DefaultSensorStatus.STOPPED
