"""The filter language of subscriptions, translated to a jsonpath predicate that PostgreSQL checks on the attributes.

attributes.k = "v"   attributes.k != "v"   attributes:k   hasPrefix(attributes.k, "v")   AND  OR  NOT  - ( )
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from clientmgr.broker.gateway.refusals import Refusal, invalid

MAX_FILTER_BYTES = 256

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)
      | (?P<sign>!=|[=:.,()-])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([0-3][0-7]{2})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str


def compile_filter(text: str) -> str | None:
    """The jsonpath for `text`; None when there is nothing to filter. A mistake in it is INVALID_ARGUMENT."""
    if not text.strip():
        return None
    if len(text.encode()) > MAX_FILTER_BYTES:
        raise invalid(f"The filter is longer than {MAX_FILTER_BYTES} bytes.")
    parser = _Parser(text)
    path = parser.expression()
    parser.expect_end()
    return path


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _mistake(text, f"{text[at:].strip()[:20]!r} is not part of the language")
        yield Token(match.lastgroup, match[match.lastgroup])
        at = match.end()


def _mistake(text: str, what: str) -> Refusal:
    return invalid(f"Invalid filter {text!r}: {what}.")


class _Parser:
    """Recursive descent: one method per rule of the grammar, each returns jsonpath."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def expression(self) -> str:
        terms = [self._term()]
        operator = None
        while (word := self._peek().text) in {"AND", "OR"} and self._peek().kind == "word":
            if operator not in {None, word}:
                raise _mistake(self._text, "AND and OR are mixed; use parentheses")
            operator = word
            self._next()
            terms.append(self._term())
        return f"({(' && ' if operator == 'AND' else ' || ').join(terms)})"

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            raise _mistake(self._text, f"{self._peek().text!r} was not expected")

    def _term(self) -> str:
        token = self._next()
        if token == Token("word", "NOT") or token == Token("sign", "-"):
            return f"!({self._term()})"
        if token == Token("sign", "("):
            inner = self.expression()
            self._expect(")")
            return inner
        if token == Token("word", "hasPrefix"):
            self._expect("(")
            if self._next() != Token("word", "attributes"):
                raise _mistake(self._text, "hasPrefix works on attributes")
            self._expect(".")
            key = self._key()
            self._expect(",")
            prefix = self._string()
            self._expect(")")
            return f"({key} starts with {json.dumps(prefix)})"
        if token == Token("word", "attributes"):
            return self._comparison()
        raise _mistake(self._text, f"{token.text!r} was not expected")

    def _comparison(self) -> str:
        if self._peek() == Token("sign", ":"):
            self._next()
            return f"exists({self._key()})"
        self._expect(".")
        key = self._key()
        operator = self._next()
        if operator.text not in {"=", "!="} or operator.kind != "sign":
            raise _mistake(self._text, "= or != was expected after an attribute")
        equal = f"({key} == {json.dumps(self._string())})"
        # As with Google: a message without the attribute counts as unequal.
        return equal if operator.text == "=" else f"!{equal}"

    def _key(self) -> str:
        token = self._next()
        if token.kind == "string":
            return f"$.{json.dumps(_unquoted(token.text))}"
        if token.kind == "word":
            return f"$.{json.dumps(token.text)}"
        raise _mistake(self._text, "the name of an attribute was expected")

    def _string(self) -> str:
        token = self._next()
        if token.kind != "string":
            raise _mistake(self._text, "a value in double quotes was expected")
        return _unquoted(token.text)

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else Token("end", "the end")

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._next() != Token("sign", sign):
            raise _mistake(self._text, f"{sign!r} was expected")


def _unquoted(literal: str) -> str:
    def replace(match: re.Match[str]) -> str:
        unicode_hex, byte_hex, octal, plain = match.groups()
        if unicode_hex or byte_hex:
            return chr(int(unicode_hex or byte_hex, 16))
        if octal:
            return chr(int(octal, 8))
        return _PLAIN_ESCAPES.get(plain, plain)

    value = _ESCAPE.sub(replace, literal[1:-1])
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise invalid("The filter holds a character that no attribute can have.")
    return value
