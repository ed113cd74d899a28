"""Numbers with their nouns, as everywhere."""

from clientmgr.base.wording import plural

__all__ = ["plural"]
