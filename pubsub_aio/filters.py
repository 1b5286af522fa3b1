r"""Pub/Sub's subscription filter language: a filter's text in, a test of message attributes out.

    attributes:key                       the message has the attribute
    attributes.key = "value"             it has it, with this value
    attributes.key != "value"            the same as NOT attributes.key = "value"
    hasPrefix(attributes.key, "value")   it has it, with a value that starts so
    NOT x, -x, x AND y, x OR y, (x)      upper case; NOT binds tightest

A message that lacks the attribute therefore passes `!=`, as it passes NOT hasPrefix(...).

AND and OR meet only across parentheses. A key of other characters than ASCII letters, digits,
hyphens and underscores is written as a string. Strings stand in double quotes, and in them
backslashes, double quotes and control characters are escaped: \\ \" \' \` \? \a \b \f \n \r \t \v,
and a code point as \ooo (three octal digits), \xhh, \uhhhh or \Uhhhhhhhh. Spaces, tabs and line
breaks may stand between any two tokens.

The language: https://cloud.google.com/pubsub/docs/subscription-message-filter
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Test = Callable[[Mapping[str, str]], bool]

_SPACE = " \t\r\n"
_TOKEN = re.compile(r"\w+|!=|.", re.ASCII)
_KEY = re.compile(r"[\w-]+", re.ASCII)
_PIECE = re.compile(
    r"""(?P<plain> [^"\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+ )
    | \\ (?: (?P<named> [abfnrtv\\"'`?] )
           | (?P<octal> [0-3][0-7]{2} )
           | (?P<hex> x[0-9A-Fa-f]{2} | u[0-9A-Fa-f]{4} | U[0-9A-Fa-f]{8} ) )""",
    re.VERBOSE,
)
_NAMED = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


class FilterError(ValueError):
    """The text is not a filter; the service answers INVALID_ARGUMENT to a request with it.

    Attributes:
        position: The character at fault, counted from 1; one past the last if the text ends early.
    """

    def __init__(self, reason: str, *, position: int) -> None:
        super().__init__(f"invalid filter at character {position}: {reason}")
        self.position = position


class Filter:
    """A parsed filter. It holds no state, so any number of subscriptions may share it."""

    __slots__ = ("_test",)

    def __init__(self, test: Test) -> None:
        self._test = test

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Say whether a message with these attributes passes."""
        return self._test(attributes)


def parse_filter(text: str, *, max_bytes: int | None = None) -> Filter:
    """Parse a filter, once for all the messages it will test.

    The empty string is an error here: it is how a subscription says that it has no filter.

    Args:
        text: The filter.
        max_bytes: How long it may be, in UTF-8; as long as it is unless told.

    Raises:
        FilterError: The text is too long or is not in the filter language.
    """
    encoded = text.encode(errors="replace")
    if max_bytes is not None and len(encoded) > max_bytes:
        within = encoded[:max_bytes].decode(errors="ignore")
        raise FilterError(f"longer than {max_bytes} bytes", position=len(within) + 1)
    return Filter(_Parser(text).parse())


def _has(key: str) -> Test:
    return lambda attributes: key in attributes


def _equals(key: str, value: str) -> Test:
    return lambda attributes: attributes.get(key) == value


def _has_prefix(key: str, prefix: str) -> Test:
    return lambda attributes: key in attributes and attributes[key].startswith(prefix)


def _negation(test: Test) -> Test:
    return lambda attributes: not test(attributes)


def _joined(tests: list[Test], *, stop: bool) -> Test:
    """Run tests until one answers `stop`: AND stops at False, OR at True."""

    def test(attributes: Mapping[str, str]) -> bool:
        for each in tests:  # all() or any() over a generator takes twice as long
            if each(attributes) is stop:
                return stop
        return not stop

    return test


@dataclass(slots=True)
class _Group:
    """What stands between two parentheses, or outside all of them."""

    opened_at: int
    negated: bool
    operator: str = ""
    tests: list[Test] = field(default_factory=list)

    def join(self) -> Test:
        if len(self.tests) == 1:
            return self.tests[0]
        # The terms of a negated group are negated already: NOT (a AND b) is NOT a OR NOT b.
        return _joined(self.tests, stop=(self.operator == "OR") != self.negated)


class _Parser:
    """Reads one filter from left to right.

    Open groups are kept in a list and negations are carried down to the conditions, so neither
    parsing nor testing recurses with the depth of parentheses or the number of NOTs.
    """

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parse(self) -> Test:
        groups = [_Group(opened_at=0, negated=False)]
        while True:
            negated = groups[-1].negated
            while self._take("NOT", "-"):
                negated = not negated
            if self._take("("):
                groups.append(_Group(opened_at=self._at - 1, negated=negated))
                continue
            test = self._condition()
            groups[-1].tests.append(_negation(test) if negated else test)
            while len(groups) > 1 and self._take(")"):
                closed = groups.pop()
                groups[-1].tests.append(closed.join())
            if not self._operator(groups[-1]):
                break
        if len(groups) > 1:
            raise self._error('this "(" is never closed', at=groups[-1].opened_at)
        return groups[0].join()

    def _operator(self, group: _Group) -> bool:
        """Read what joins the next term to the group; False where the text ends instead."""
        operator = self._take("AND", "OR")
        if operator and group.operator not in ("", operator):
            raise self._error("AND beside OR needs parentheses", at=self._at - len(operator))
        if not operator and self._at < len(self._text):
            raise self._error("expected AND, OR or the end of the expression")
        group.operator = operator or group.operator
        return bool(operator)

    def _condition(self) -> Test:
        if self._take("hasPrefix"):
            for token in ("(", "attributes", "."):
                self._expect(token)
            key = self._key()
            self._expect(",")
            prefix = self._string()
            self._expect(")")
            return _has_prefix(key, prefix)
        self._expect("attributes", what="a condition on attributes")
        if self._take(":"):
            return _has(self._key())
        self._expect(".", what='"." or ":"')
        key = self._key()
        if self._take("="):
            return _equals(key, self._string())
        self._expect("!=", what='"=" or "!="')
        return _negation(_equals(key, self._string()))

    def _key(self) -> str:
        if self._take('"'):
            return self._rest_of_string()
        key = _KEY.match(self._text, self._at)
        if key is None:
            raise self._error("expected a key: letters, digits, hyphens, underscores or a string")
        self._at = key.end()
        return key[0]

    def _string(self) -> str:
        self._expect('"', what="a string in double quotes")
        return self._rest_of_string()

    def _rest_of_string(self) -> str:
        opened_at = self._at - 1
        decoded = ""
        while piece := _PIECE.match(self._text, self._at):
            decoded += self._decode(piece)
            self._at = piece.end()
        match self._text[self._at : self._at + 1]:
            case '"':
                self._at += 1
                return decoded
            case "":
                raise self._error("this string is never closed", at=opened_at)
            case "\\":
                raise self._error("unknown escape sequence")
            case _:
                raise self._error("this character must be escaped")

    def _decode(self, piece: re.Match[str]) -> str:
        if plain := piece["plain"]:
            return plain
        if named := piece["named"]:
            return _NAMED.get(named, named)
        code_point = int(piece["octal"], 8) if piece["octal"] else int(piece["hex"][1:], 16)
        if 0xD800 <= code_point <= 0xDFFF or code_point > 0x10FFFF:
            raise self._error("this escape sequence names no character")
        return chr(code_point)

    def _take(self, *tokens: str) -> str:
        """Step over the next token if it is one of these; a word is taken whole or not at all."""
        self._at = len(self._text) - len(self._text[self._at :].lstrip(_SPACE))
        found = _TOKEN.match(self._text, self._at)
        if found is None or found[0] not in tokens:
            return ""
        self._at = found.end()
        return found[0]

    def _expect(self, token: str, *, what: str = "") -> None:
        if not self._take(token):
            raise self._error(f"expected {what or repr(token)}")

    def _error(self, reason: str, *, at: int | None = None) -> FilterError:
        return FilterError(reason, position=(self._at if at is None else at) + 1)
