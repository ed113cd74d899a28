"""What an entry of the registry of daemons (daemons.py) is made of. Only types: no daemon is named here."""

from dataclasses import dataclass
from typing import Literal

from clientmgr.base.database import Role

Starts = Literal["always", "where needed", "by hand"]
"""always: `up` and deploy/ start it. where needed: deploy/ can start it, nobody has to. by hand: whoever wants it."""

JudgedBy = Literal["unread messages", "unread positions", "its answer", "its process"]
"""How operators see whether a daemon keeps up: by its subscriptions, by its group on the Redis stream, by asking its
port. The last has only /healthz on METRICS_PORT, as all others have too."""


@dataclass(frozen=True)
class Subscription:
    """What a daemon reads messages from. It carries the name of its topic unless it has one of its own."""

    topic: str
    own_name: str = ""

    @property
    def name(self) -> str:
        return self.own_name or self.topic


@dataclass(frozen=True)
class StreamGroup:
    """A consumer group on a Redis stream."""

    stream_setting: str
    group: str = ""
    """Empty: each instance has a group of its own and reads everything."""


@dataclass(frozen=True)
class Listening:
    """A port of its own, besides METRICS_PORT."""

    host_setting: str
    port_setting: str
    port_name: str
    """In the manifests."""
    health_path: str = ""
    """Where it answers whether all is well. Empty: only METRICS_PORT does."""


@dataclass(frozen=True)
class Option:
    """An option of `clientmgr run NAME`; its value reaches the code under `parameter`."""

    parameter: str
    flags: tuple[str, ...]
    help: str
    default: str | bool | None = None
    """None: it has to be given. A bool: the option takes no value."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Process:
    """One process of a daemon, as `up`, systemd and Kubernetes start it."""

    name: str
    arguments: tuple[str, ...]
    """Of `clientmgr`."""
    reads: tuple[Subscription, ...] = ()
    publishes: tuple[str, ...] = ()
    spelled_out: tuple[str, ...] = ()
    """Defaults that deploy/ names all the same: whoever copies its files changes them."""


@dataclass(frozen=True)
class Deployment:
    """What deploy/ says of it and not of others."""

    replicas: int = 1
    """Pods that its manifest asks for."""
    note: str = ""
    """On top of its manifest, and of its unit where it has one of its own."""
    cpu: str = "100m"
    memory: str = "192Mi"
    memory_limit: str = "512Mi"
    is_spread: bool | None = None
    """Whether its pods go to different nodes. None: where there are several."""


@dataclass(frozen=True)
class DaemonEntry:
    """A daemon: what it is called, what it does, and all that others need to know to run, watch and describe it."""

    name: str
    does: str
    """In a few words, for the index of docs/daemons.md."""
    help: str = ""
    """Of `clientmgr run NAME`."""
    run: str = ""
    """module:attribute of a function (settings, **options) -> `DaemonWork`. Empty: it is no `clientmgr run` command."""
    modules: tuple[str, ...] = ()
    """Where its code begins, if `run` does not say."""
    options: tuple[Option, ...] = ()
    usage: str = ""
    """Its command line in the documentation, where that is more than `clientmgr run NAME`."""
    arguments: tuple[str, ...] = ()
    """Its command line as it is started. Empty: run NAME."""
    reads: tuple[Subscription, ...] = ()
    streams: tuple[StreamGroup, ...] = ()
    reads_besides: str = ""
    """What is neither subscription nor stream, in words. So with what it publishes."""
    publishes: tuple[str, ...] = ()
    publishes_besides: str = ""
    writes: tuple[str, ...] = ()
    """Tables that it writes, by the names of their assets in Dagster's lineage. So with those that it looks up."""
    looks_up: tuple[str, ...] = ()
    several: tuple[Process, ...] = ()
    """Its processes, where it runs as more than one; reads and publishes are theirs then."""
    starts: Starts = "always"
    shares: str = ""
    """The process that it shares in `up` with all that name the same one. Elsewhere each stays by itself."""
    roles: tuple[Role, ...] = ()
    settings: tuple[str, ...] = ()
    """Besides those that all share."""
    metrics: tuple[str, ...] = ()
    """Modules all of whose metrics it serves, or module:NAME for a single one."""
    listens: Listening | None = None
    judged_by: JudgedBy = "its process"
    deployment: Deployment = Deployment()

    @property
    def processes(self) -> tuple[Process, ...]:
        if self.several:
            return self.several
        return (Process(self.name, self.arguments or ("run", self.name), self.reads, self.publishes),)

    @property
    def code(self) -> tuple[str, ...]:
        """The modules that its code begins with."""
        return self.modules or (self.run.partition(":")[0],)
