from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from pubsub_aio.emulator.settings import MAX_FILTER_BYTES
from pubsub_aio.filters import FilterError, parse_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def matches(text: str, **attributes: str) -> bool:
    return parse_filter(text).matches(attributes)


def position_of_error(text: str, *, max_bytes: int | None = None) -> int:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, max_bytes=max_bytes)
    assert str(caught.value).startswith(f"invalid filter at character {caught.value.position}: ")
    return caught.value.position


# What a filter means


@pytest.mark.parametrize(
    ("text", "absent", "co", "com", "net"),
    [
        ("attributes:name", False, True, True, True),
        ("NOT attributes:name", True, False, False, False),
        ('attributes.name = "com"', False, False, True, False),
        ('attributes.name != "com"', True, True, False, True),
        ('NOT attributes.name = "com"', True, True, False, True),
        ('NOT attributes.name != "com"', False, False, True, False),
        ('hasPrefix(attributes.name, "co")', False, True, True, False),
        ('NOT hasPrefix(attributes.name, "co")', True, False, False, True),
        ('hasPrefix(attributes.name, "")', False, True, True, True),
    ],
)
def test_a_condition_selects_by_presence_value_or_prefix(
    text: str, absent: bool, co: bool, com: bool, net: bool
) -> None:
    wanted = parse_filter(text)

    assert wanted.matches({"other": "com"}) is absent
    assert wanted.matches({"name": "co"}) is co
    assert wanted.matches({"name": "com"}) is com
    assert wanted.matches({"name": "net", "other": "com"}) is net
    assert wanted.matches({"name": "net.com"}) is net


def test_an_empty_value_is_not_an_absent_attribute() -> None:
    assert matches("attributes:name", name="")
    assert matches('attributes.name = ""', name="")
    assert not matches('attributes.name = ""')
    assert matches('attributes.name != ""')


def test_keys_and_values_are_case_sensitive() -> None:
    assert not matches("attributes:name", Name="com")
    assert not matches('attributes.name = "com"', name="COM")
    assert not matches('hasPrefix(attributes.name, "co")', name="Com")


TAG = "iana.org/language_tag"


@pytest.mark.parametrize(
    ("text", "attributes", "wanted"),
    [
        (f'attributes."{TAG}" = "en"', {TAG: "en"}, True),
        (f'attributes."{TAG}" = "en"', {TAG: "fr"}, False),
        (f'attributes:"{TAG}" AND NOT attributes.name = "com"', {TAG: "en"}, True),
        (f'attributes:"{TAG}" AND NOT attributes.name = "com"', {TAG: "", "name": "com"}, False),
        (f'attributes:"{TAG}" AND NOT attributes.name = "com"', {"name": "net"}, False),
        (
            f'attributes:"{TAG}" AND (attributes.name = "net" OR attributes.name = "org")',
            {TAG: "en", "name": "org"},
            True,
        ),
        (
            f'attributes:"{TAG}" AND (attributes.name = "net" OR attributes.name = "org")',
            {"name": "org"},
            False,
        ),
        (f'attributes.name = "com" AND -attributes:"{TAG}"', {"name": "com"}, True),
        (f'attributes.name = "com" AND -attributes:"{TAG}"', {"name": "com", TAG: "en"}, False),
        (r'attributes:"\u307F\u3093\u306A"', {"みんな": "x"}, True),
        ('attributes:"みんな"', {"みんな": "x"}, True),
    ],
)
def test_the_documentations_own_filters(
    text: str, attributes: dict[str, str], wanted: bool
) -> None:
    assert parse_filter(text).matches(attributes) is wanted


def test_not_binds_tighter_than_and_or() -> None:
    assert not matches("NOT attributes:a AND attributes:b")
    assert matches("NOT attributes:a OR attributes:b", a="", b="")
    assert matches("-attributes:a OR attributes:b", a="", b="")


def test_not_before_parentheses_negates_all_that_is_in_them() -> None:
    assert matches("NOT (attributes:a AND attributes:b)", a="")
    assert not matches("NOT (attributes:a AND attributes:b)", a="", b="")
    assert not matches("-(attributes:a OR attributes:b)", b="")
    assert matches("-(attributes:a OR -attributes:b)", b="")


def test_an_operator_repeats() -> None:
    every = "attributes:a AND attributes:b AND attributes:c"
    some = "attributes:a OR attributes:b OR attributes:c"

    assert matches(every, a="", b="", c="")
    assert not matches(every, a="", b="")
    assert matches(some, c="")
    assert not matches(some, d="")


def test_a_group_chooses_its_own_operator() -> None:
    text = "(attributes:a AND attributes:b) OR (attributes:c AND attributes:d)"

    assert matches(text, c="", d="")
    assert not matches(text, a="", c="")


# How it may be written


@pytest.mark.parametrize(
    "key", ["a", "Z9", "0", "_", "a-b", "-a", "a-", "--", "attributes", "AND", "NOT", "hasPrefix"]
)
def test_a_key_of_word_characters_and_hyphens_needs_no_quotes(key: str) -> None:
    present = {key: "v"}

    assert parse_filter(f"attributes:{key}").matches(present)
    assert parse_filter(f'attributes.{key} = "v"').matches(present)
    assert parse_filter(f'hasPrefix(attributes.{key},"v")').matches(present)
    assert not parse_filter(f"-attributes:{key}").matches(present)


@pytest.mark.parametrize("key", ["a b", "a.b", "é", "a:b", "(", "AND", "plain", "-"])
def test_any_key_may_be_a_string(key: str) -> None:
    assert parse_filter(f'attributes:"{key}"').matches({key: "v"})
    assert parse_filter(f'attributes."{key}" = "v"').matches({key: "v"})
    assert parse_filter(f'hasPrefix(attributes."{key}", "v")').matches({key: "v"})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\\ \" \' \` \?", "\\ \" ' ` ?"),
        (r"\a\b\f\n\r\t\v", "\a\b\f\n\r\t\v"),
        (r"\000\101\377", "\x00A\xff"),
        (r"\1011", "A1"),
        (r"\x41\xfF", "A\xff"),
        (r"\x411", "A1"),
        (r"\u0041\u307F", "Aみ"),
        (r"\u00411", "A1"),
        (r"\U00000041\U0001F600\U0010ffff", "A😀\U0010ffff"),
        (r"\\n", "\\n"),
        ("é 😀 ' ` ( ) AND -", "é 😀 ' ` ( ) AND -"),
    ],
)
def test_a_string_literal_unescapes(written: str, meant: str) -> None:
    assert parse_filter(f'attributes.k = "{written}"').matches({"k": meant})
    assert parse_filter(f'attributes:"{written}"').matches({meant: ""})


@pytest.mark.parametrize(
    "text",
    [
        'attributes:a AND(hasPrefix(attributes.b,"x")OR-attributes.c!="y")',
        ' attributes : a\tAND\n( hasPrefix ( attributes . b ,\r\n"x" ) OR - attributes.c != "y" ) ',
    ],
)
def test_whitespace_between_tokens_is_free(text: str) -> None:
    assert matches(text, a="", b="xx")
    assert matches(text, a="", c="y")
    assert not matches(text, a="", c="z")


# What is refused, and where


@pytest.mark.parametrize(
    ("text", "position"),
    [
        # the documentation's own invalid filters
        ('"com" = attributes.name', 1),
        ("attributes.name = attributes.website", 19),
        (r"attributes:\u307F\u3093\u306A", 12),
        (f'attributes:"{TAG}" AND attributes.name = "net" OR attributes.name = "org"', 64),
        ('attributes.name = "com" AND ("net" OR "org")', 30),
        # nothing where a condition belongs
        ("", 1),
        (" \t", 3),
        ("NOT", 4),
        ("-", 2),
        ("()", 2),
        ("attributes:a AND", 17),
        ("attributes:a OR ", 17),
        ("AND attributes:a", 1),
        ("attributes:a AND OR attributes:b", 18),
        # operators and names
        ("attributes:a and attributes:b", 14),
        ("not attributes:a", 1),
        ("NOTattributes:a", 1),
        ("attributes:a ANDattributes:b", 14),
        ("attributes:a attributes:b", 14),
        ("attributes:a OR attributes:b AND attributes:c", 30),
        ("attributes:a AND (attributes:b OR attributes:c AND attributes:d)", 48),
        ("(attributes:a AND attributes:b) OR attributes:c AND attributes:d", 49),
        ("Attributes:a", 1),
        ("attribute:a", 1),
        ("data:a", 1),
        ('hasSuffix(attributes.a, "b")', 1),
        ('hasprefix(attributes.a, "b")', 1),
        # the parts of a condition
        ("attributes", 11),
        ("attributes:", 12),
        ("attributes.", 12),
        ("attributes.a", 13),
        ('attributes.a.b = "c"', 13),
        ("attributes:a.b", 13),
        ('attributes:a = "b"', 14),
        ('attributes:é = "b"', 12),
        ('attributes.a == "b"', 15),
        ('attributes.a > "b"', 14),
        ('attributes.a ! = "b"', 14),
        ("attributes.a = b", 16),
        ("attributes.a = 'b'", 16),
        ("attributes.a =", 15),
        ("hasPrefix", 10),
        ("hasPrefix(", 11),
        ('hasPrefix("a", "b")', 11),
        ('hasPrefix(attributes:a, "b")', 21),
        ("hasPrefix(attributes.a)", 23),
        ("hasPrefix(attributes.a, b)", 25),
        ('hasPrefix(attributes.a, "b"', 28),
        ('hasPrefix(attributes.a, "b") = "c"', 30),
        ("attributes:a\u00a0", 13),
        # parentheses
        ("(attributes:a", 1),
        ("(attributes:a AND (attributes:b)", 1),
        ("(attributes:a AND (attributes:b", 19),
        ("attributes:a)", 13),
        ("(attributes:a))", 15),
        ("(attributes:a)(attributes:b)", 15),
        # strings
        ('attributes:"a', 12),
        ('attributes.a = "b', 16),
        ('attributes.a = "b\\"', 16),
        ('attributes.a = "b\\', 18),
        (r'attributes.a = "b\q"', 18),
        (r'attributes.a = "\x4"', 17),
        (r'attributes.a = "\xg0"', 17),
        (r'attributes.a = "\u30"', 17),
        (r'attributes.a = "\U0001F60"', 17),
        (r'attributes.a = "\12"', 17),
        (r'attributes.a = "\400"', 17),
        (r'attributes.a = "\108"', 17),
        (r'attributes.a = "ab\uD83D"', 19),
        (r'attributes.a = "\uDFFF"', 17),
        (r'attributes.a = "\U00110000"', 17),
        ('attributes.a = "b\nc"', 18),
        ('attributes.a = "\x7f"', 17),
        ('attributes.a = "\x85"', 17),
        ('attributes.a = "\ud800"', 17),
        ("attributes:\udfff", 12),
    ],
)
def test_a_syntax_error_is_reported_where_it_is(text: str, position: int) -> None:
    assert position_of_error(text) == position


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"com" = attributes.name', "expected a condition on attributes"),
        ("attributes.a = b", "expected a string in double quotes"),
        ("attributes:a AND attributes:b OR attributes:c", "AND beside OR needs parentheses"),
        ("(attributes:a", 'this "(" is never closed'),
        ('attributes:"a', "this string is never closed"),
        ('attributes:"\t"', "this character must be escaped"),
        (r'attributes:"\q"', "unknown escape sequence"),
        (r'attributes:"\ud800"', "this escape sequence names no character"),
        ("attributes:" + 990 * "a", "longer than 1000 bytes"),
    ],
)
def test_a_syntax_error_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text, max_bytes=1_000)

    assert str(caught.value) == f"invalid filter at character {caught.value.position}: {reason}"


def test_a_filter_may_have_as_many_bytes_of_utf_8_as_is_said() -> None:
    frame, most = 'attributes:""', MAX_FILTER_BYTES
    ascii_key = (256 - len(frame)) * "k"
    wide_key = (256 - len(frame)) // 3 * "み"

    assert parse_filter(f'attributes:"{ascii_key}"', max_bytes=most).matches({ascii_key: ""})
    assert parse_filter(f'attributes:"{wide_key}"', max_bytes=most).matches({wide_key: ""})
    assert position_of_error(f'attributes:"{ascii_key}k"', max_bytes=most) == 257
    # 12 bytes before the first of them, and 81 of three bytes each reach byte 255
    assert position_of_error(f'attributes:"{wide_key}み"', max_bytes=most) == 12 + 81 + 1


def test_a_filter_may_be_as_long_as_it_is_where_nothing_is_said() -> None:
    assert parse_filter(f"attributes:{1_000 * 'k'}").matches({1_000 * "k": ""})


# Depth


@contextmanager
def few_frames_left(frames: int = 20) -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (122 * "(" + "attributes:a" + 122 * ")", True),
        (244 * "-" + "attributes:a", True),
        (243 * "-" + "attributes:a", False),
        (61 * "NOT " + "attributes:a", False),
        (81 * "-(" + "attributes:a" + 81 * ")", False),
        (48 * "NOT(" + "attributes:a" + 48 * ")", True),
    ],
)
def test_nesting_takes_no_stack(text: str, wanted: bool) -> None:
    with few_frames_left():
        deep = parse_filter(text)
        found = (deep.matches({"a": ""}), deep.matches({}))

    assert found == (wanted, not wanted)


@pytest.mark.parametrize("text", [127 * "(" + 127 * ")", 256 * "(", 256 * "-", 80 * "-("])
def test_nesting_around_nothing_is_an_error(text: str) -> None:
    with few_frames_left(40):  # pytest.raises takes some of them
        position = position_of_error(text)

    assert position == len(text.rstrip(")")) + 1


# Properties

KEYS = ["a", "b", "c-d", "e f", 'g"']
VALUES = ["", "x", "xy", "yx", "\\", "é\n"]
TOKENS = [
    *("attributes", "hasPrefix", "AND", "OR", "NOT", "-", "(", ")", ".", ":", ",", "=", "!="),
    *(" ", "a", '"a"', '"', "\\", r"\x41", r"\u", "attributes:a", 'attributes.a = "b"'),
]


@dataclass(frozen=True)
class Has:
    key: str


@dataclass(frozen=True)
class Compare:
    key: str
    operator: str
    value: str


@dataclass(frozen=True)
class Not:
    term: Tree


@dataclass(frozen=True)
class Join:
    operator: str
    terms: list[Tree]


Tree = Has | Compare | Not | Join


def evaluate(tree: Tree, attributes: Mapping[str, str]) -> bool:
    match tree:
        case Has(key):
            return key in attributes
        case Compare(key, "=", value):
            return (key, value) in attributes.items()
        case Compare(key, "!=", value):
            return (key, value) not in attributes.items()
        case Compare(key, _, value):
            return any(k == key and v[: len(value)] == value for k, v in attributes.items())
        case Not(term):
            return not evaluate(term, attributes)
        case Join(operator, terms):
            return {"AND": all, "OR": any}[operator](evaluate(term, attributes) for term in terms)


@st.composite
def literals(draw: st.DrawFn, text: str) -> str:
    """The text as a string literal, each character in one of the ways that can spell it."""
    written = '"'
    for character in text:
        code = ord(character)
        ways = [f"\\U{code:08x}"]
        if character not in '"\\' and character.isprintable():
            ways.append(character)
        if code < 0x10000:
            ways.append(f"\\u{code:04X}")
        if code < 0x100:
            ways += [f"\\x{code:02x}", f"\\{code:03o}"]
        if character in '"\\':
            ways.append(f"\\{character}")
        written += draw(st.sampled_from(ways))
    return written + '"'


@st.composite
def operands(draw: st.DrawFn, tree: Tree) -> str:
    text = draw(renderings(tree))
    return f"({text})" if isinstance(tree, Join) else text


@st.composite
def renderings(draw: st.DrawFn, tree: Tree) -> str:
    """The tree as text, with spaces, parentheses and negations written in any of their ways."""
    space = draw(st.sampled_from(["", " ", "\n"]))
    gap = draw(st.sampled_from([" ", "\t"]))
    match tree:
        case Has(key) | Compare(key):
            plain = key.replace("-", "").isalpha()
            name = key if plain and draw(st.booleans()) else draw(literals(key))
            text = f"attributes:{space}{name}"
            if isinstance(tree, Compare):
                value = draw(literals(tree.value))
                text = f"attributes.{name}{space}{tree.operator}{space}{value}"
                if tree.operator == "hasPrefix":
                    text = f"hasPrefix({space}attributes.{name},{space}{value})"
        case Not(term):
            text = draw(st.sampled_from([f"NOT{gap}", f"-{space}"])) + draw(operands(term))
        case Join(operator, terms):
            text = f"{gap}{operator}{gap}".join(draw(operands(term)) for term in terms)
    return f"({space}{text})" if draw(st.integers(0, 4)) == 0 else text


trees = st.recursive(
    st.builds(Has, st.sampled_from(KEYS))
    | st.builds(
        Compare,
        st.sampled_from(KEYS),
        st.sampled_from(["=", "!=", "hasPrefix"]),
        st.sampled_from(VALUES),
    ),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Join, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=6,
)
messages = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@given(data=st.data(), tree=trees, attributes=st.lists(messages, min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_a_rendered_tree_means_what_the_tree_means(
    data: st.DataObject, tree: Tree, attributes: list[dict[str, str]]
) -> None:
    text = data.draw(renderings(tree))
    assume(len(text.encode()) <= 256)

    parsed = parse_filter(text)

    assert [parsed.matches(each) for each in attributes] == [
        evaluate(tree, each) for each in attributes
    ]


@given(data=st.data(), value=st.text(max_size=20))
@settings(deadline=None)
def test_any_text_can_be_spelled_as_a_value(data: st.DataObject, value: str) -> None:
    text = f"attributes.k={data.draw(literals(value))}"

    assert parse_filter(text).matches({"k": value})
    assert not parse_filter(text).matches({"k": value + "x"})


@given(
    text=st.text(max_size=300)
    | st.text(st.characters(), max_size=300)  # with lone surrogates, as JSON can bring them
    | st.lists(st.sampled_from(TOKENS), max_size=40).map("".join)
    | st.lists(st.sampled_from(TOKENS), max_size=40).map(" ".join)
)
@example(text=300 * "\ud800")
@example(text="(" * 256)
@example(text='attributes:"' + 122 * r"\\")
@settings(max_examples=1_000, deadline=1_000)
def test_any_text_is_a_filter_or_an_error_within_it(text: str) -> None:
    position = 1
    try:
        parse_filter(text).matches({})
    except FilterError as error:
        position = error.position

    assert 1 <= position <= len(text) + 1
