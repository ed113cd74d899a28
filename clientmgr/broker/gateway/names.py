"""Resource names of Google's API, and which topic of the log each stands for."""

import re
from dataclasses import dataclass

from clientmgr.broker.gateway.refusals import invalid_name

_ID = r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}"
_TOPIC = re.compile(rf"projects/([^/\s]+)/topics/({_ID})")
_SUBSCRIPTION = re.compile(rf"projects/([^/\s]+)/subscriptions/({_ID})")
_SNAPSHOT = re.compile(rf"projects/([^/\s]+)/snapshots/({_ID})")
_PROJECT = re.compile(r"projects/([^/\s]+)")

SNAPSHOT = "snapshots"
_KINDS = ("topics", "subscriptions", SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Names:
    """The topics of our own project are the log's, by their short names; those of other projects keep the long one."""

    own_project: str

    def log_topic(self, topic: str) -> str:
        project, short = topic_parts(topic)
        return short if project == self.own_project else topic

    def short(self, name: str) -> str:
        """What rights go by: the id of a resource of our own project, else the whole name."""
        prefix, _, short = name.rpartition("/")
        return short if prefix in self._own else name

    @property
    def _own(self) -> tuple[str, ...]:
        return tuple(f"projects/{self.own_project}/{kind}" for kind in _KINDS)

    def topic_of_log(self, log_topic: str) -> str | None:
        """The API's name for a topic of the log. None: Pub/Sub does not allow its name."""
        name = log_topic if log_topic.startswith("projects/") else f"projects/{self.own_project}/topics/{log_topic}"
        return name if _TOPIC.fullmatch(name) else None


def topic_parts(name: str) -> tuple[str, str]:
    """(project, id), or INVALID_ARGUMENT."""
    match = _TOPIC.fullmatch(name)
    if match is None:
        raise invalid_name(name)
    return match[1], match[2]


def check_subscription(name: str) -> str:
    """The name, or INVALID_ARGUMENT."""
    if _SUBSCRIPTION.fullmatch(name) is None:
        raise invalid_name(name)
    return name


def check_snapshot(name: str) -> str:
    """The name, or INVALID_ARGUMENT."""
    if _SNAPSHOT.fullmatch(name) is None:
        raise invalid_name(name)
    return name


def project_of(name: str) -> str:
    """The id in `projects/…`, or INVALID_ARGUMENT."""
    match = _PROJECT.fullmatch(name)
    if match is None:
        raise invalid_name(name)
    return match[1]
