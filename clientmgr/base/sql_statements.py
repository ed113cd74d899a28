"""Takes SQL of several statements apart, for where only one may be sent at a time.

It knows what a semicolon can stand in: literals, quoted names, dollar quotes, comments, parentheses and the body of a
function in standard SQL.
"""

import functools
import re
from typing import Final

from clientmgr.base.errors import MigrationError

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | [eE]'(?:[^'\\]|\\.|'')*'  # the only literal in which a backslash means something
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | (?P<word>[^\W\d][\w$]*)
    | [\d.]+[\w$]*
    | (?P<end>;)
    | (?P<unclosed>['"]|\$(?:[^\W\d]\w*)?\$)
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


@functools.lru_cache(maxsize=64)
def statements_of(text: str) -> tuple[str, ...]:
    """The statements, in order, without the semicolons between them; what holds nothing but comments is none."""
    found = []
    begin = position = depth = 0
    is_empty = True
    words: list[str] = []
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None or token["unclosed"]:
            raise MigrationError(f"SQL: a quote is never closed: {text[position : position + 40]!r}")
        position = token.end()
        if token["blank"]:
            continue
        if token["comment"]:
            position = _end_of_comment(text, position)
            continue
        if token["end"] and depth == 0:
            if not is_empty:
                found.append(text[begin : token.start()].strip())
            begin, is_empty, words = position, True, []
            continue
        is_empty = False
        depth = max(0, depth + _deeper(token, words, depth))
    if not is_empty:
        found.append(text[begin:].strip())
    return tuple(found)


def _deeper(token: re.Match[str], words: list[str], depth: int) -> int:
    """By how much the token leads into parentheses or the body of a function, or out of them."""
    if token["word"] is None:
        return {"(": 1, "[": 1, ")": -1, "]": -1}.get(token[0], 0)
    words.append(token["word"].upper())
    if words[-2:] == ["BEGIN", "ATOMIC"]:
        return 1
    # Only in such a body is END more than a statement's own word, and CASE is what else it ends.
    in_body = depth > 0 and "ATOMIC" in words
    return {"CASE": 1, "END": -1}.get(words[-1], 0) if in_body else 0


def _end_of_comment(text: str, position: int) -> int:
    """Comments of this kind nest."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            raise MigrationError(f"SQL: a comment is never closed: {text[position : position + 40]!r}")
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position
