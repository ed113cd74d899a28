"""An entry of the registry of daemons (clientmgr/contracts/daemons.py) in the documentation's words."""

from clientmgr.base.settings import Settings
from clientmgr.contracts.daemon_entry import DaemonEntry
from tools.docs.markdown import code


def reads_from(entry: DaemonEntry) -> list[str]:
    besides = [entry.reads_besides] if entry.reads_besides else []
    streams = [_streams(entry)] if entry.streams else []
    return [*besides, *streams, *(general(read.topic) for read in entry.processes[0].reads)]


def subscriptions(entry: DaemonEntry) -> list[str]:
    return [general(read.name) for read in entry.processes[0].reads]


def publishes_to(entry: DaemonEntry) -> list[str]:
    besides = [entry.publishes_besides] if entry.publishes_besides else []
    return [*besides, *(general(topic) for topic in entry.processes[0].publishes)]


def command(entry: DaemonEntry) -> str:
    return entry.usage or f"clientmgr run {entry.name}"


def general(topic: str) -> str:
    """A device mapper's topic without its type of traffic and delivery group."""
    return topic.replace("sending-batch-", "sending-<batch|tx>-").replace("-dg00", "-<dg>")


def _streams(entry: DaemonEntry) -> str:
    names = {one.stream_setting: Settings.model_fields[one.stream_setting.lower()].default for one in entry.streams}
    groups = [f"group {code(one.group)}" if one.group else "a group for each instance" for one in entry.streams]
    return f"Redis stream {code(*names.values())}, {' and '.join(groups)}"
