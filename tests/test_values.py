"""What may be stored: what is refused, in which words, and that the rest comes back as it was."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import re
import sys
import types
import uuid
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.migrations.writer import MigrationWriter
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue import values
from jobqueue.fields import ExactJSONField
from jobqueue.texts import storable_text
from jobqueue.values import normalize, normalize_call

try:
    from django.utils.json import normalize_json
except ImportError:  # Django 5.2
    from django_tasks.utils import normalize_json

LIMIT = 1_000_000


class Colour(enum.Enum):
    RED = "red"


class Shade(enum.StrEnum):
    DARK = "dark"


class Size(enum.IntEnum):
    BIG = 3


class Named(str, enum.Enum):  # noqa: UP042  its str() is "Named.ONE"
    ONE = "one"


class Letters(models.TextChoices):
    A = "a", "The letter A"


class Half(float):
    """A float by another name, as NumPy has."""

    def __repr__(self):
        return "Half()"


class Loner(str):
    """Text that is equal to nothing else, in a dict too."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


@dataclasses.dataclass
class Order:
    number: int


Point = collections.namedtuple("Point", "x y")


class Box(models.Model):
    """A row with one value, in a table of the test alone."""

    value = ExactJSONField(null=True)

    class Meta:
        app_label = "test_values"
        managed = False
        db_table = "test_values_box"


def same(one: Any, two: Any) -> bool:
    """Equal, of the same types, and with the same sign of zero."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return one == two and math.copysign(1, one) == math.copysign(1, two)
    return one == two


def nested(levels: int, kind: str = "list") -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if kind == "list" else {"k": value}
    return value


# What JSON can be, with what databases are known to stumble over.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NUMBERS = (
    st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 1e16, 6.022e23, 1e-7, 5e-324, 10**300, 2**53 + 1])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)

# How long an example takes says nothing on a busy machine.
unhurried = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def told(value):
    """A parameter's name, the same in every process: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


# Arguments: accepted


@unhurried
@given(JSON)
def test_json_is_copied_as_it_is(value):
    assert same(normalize(value, "args[0]"), value)
    args, kwargs = normalize_call([value], {"key": value}, LIMIT)
    assert same(args, [value])
    assert same(kwargs, {"key": value})


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        (range(3), [0, 1, 2]),
        (collections.deque([1]), [1]),
        (array.array("b", [1, 2]), [1, 2]),
        (bytearray(b"a"), [97]),
        (b"caf\xc3\xa9", "café"),
        (collections.OrderedDict(a=1), {"a": 1}),
        (collections.ChainMap({"a": 1}, {"b": 2}), {"b": 2, "a": 1}),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
        (mark_safe("<b>"), "<b>"),
        (Shade.DARK, "dark"),
        (Named.ONE, "one"),
        (Letters.A, "a"),
        (Size.BIG, 3),
        (Half(0.5), 0.5),
        ({mark_safe("key"): Size.BIG}, {"key": 3}),
        ({Named.ONE: 1}, {"one": 1}),
        (SimpleLazyObject(lambda: {"a": (1,)}), {"a": [1]}),
        (SimpleLazyObject(lambda: "lazy"), "lazy"),
        (SimpleLazyObject(lambda: 7), 7),
        (SimpleLazyObject(lambda: 0.5), 0.5),
        (SimpleLazyObject(lambda: True), True),
    ],
    ids=told,
)
def test_what_django_converts_is_converted_alike(value, plain):
    made = normalize(value, "value")
    assert same(made, plain)
    assert made == normalize_json(value)


def test_the_copy_shares_nothing_that_can_change():
    inner = [1]
    args, kwargs = normalize_call([inner, {"inner": inner}], {"again": inner}, LIMIT)
    inner.append(2)
    assert (args, kwargs) == ([[1], {"inner": [1]}], {"again": [1]})
    args[0].append(3)
    assert args[1] == {"inner": [1]}


def test_integers_up_to_the_digits_that_python_writes():
    assert normalize(10**4300 - 1, "n") == 10**4300 - 1
    for value in (10**4300, -(10**4300)):
        with pytest.raises(ValueError, match=r"integer of more than 4300 digits at n; pass hex"):
            normalize(value, "n")


def test_integers_beyond_a_limit_of_this_process():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        assert normalize(10**639, "n") == 10**639
        with pytest.raises(ValueError, match="more than 640 digits"):
            normalize(10**640, "n")
        sys.set_int_max_str_digits(0)
        with pytest.raises(ValueError, match="more than 4300 digits"):
            normalize(10**4300, "n")
    finally:
        sys.set_int_max_str_digits(before)


# Arguments: refused


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({1, 2}, "pass a list"),
        (frozenset(), "pass a list"),
        ({"a": 1}.keys(), "pass a list"),
        ((n for n in "ab"), "pass a list"),
        (decimal.Decimal("1.10"), "pass str(value)"),
        (uuid.UUID(int=1), "pass str(value)"),
        (pathlib.Path("a"), "pass str(value)"),
        (gettext_lazy("words"), "pass str(value)"),
        (datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "pass value.isoformat()"),
        (datetime.date(2024, 1, 1), "pass value.isoformat()"),
        (datetime.time(12), "pass value.isoformat()"),
        (datetime.timedelta(1), "pass value.total_seconds()"),
        (Colour.RED, "pass its .value"),
        (Box(pk=1), "pass its primary key"),
        (SimpleLazyObject(lambda: Box(pk=1)), "pass its primary key"),
        (Box.objects.all(), "pass a list of primary keys"),
        (Order(1), "pass dataclasses.asdict(value)"),
        (object(), ""),
        (1j, ""),
        (len, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused_in_djangos_words_with_path_and_advice(value, hint):
    words = f"Unsupported type: {type(value)}"
    with pytest.raises(TypeError, match=re.escape(words)):
        normalize_json(value)
    told = re.escape(f"{words} at kwargs.order.lines[3]" + (f"; {hint}" if hint else "")) + "$"
    with pytest.raises(TypeError, match=told):
        normalize_call((), {"order": {"lines": [0, 1, 2, value]}}, LIMIT)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "Unsupported value: nan"),
        (float("inf"), "Unsupported value: inf"),
        (float("-inf"), "Unsupported value: -inf"),
        (Half("nan"), "Unsupported value: nan"),
        ("a\0b", "Unsupported value: U+0000 in text"),
        ("é\0", "Unsupported value: U+0000 in text"),
        (b"a\0b", "Unsupported value: U+0000 in text"),
        ("\udce9.txt", "Unsupported value: lone surrogate U+DCE9 in text"),
        ("\ud83d\ude00", "Unsupported value: lone surrogate U+D83D in text"),
        (b"\xff", "Unsupported value: <class 'bytes'>"),
    ],
)
def test_values_that_a_database_refuses_are_refused_with_their_path(value, words):
    with pytest.raises(ValueError, match=re.escape(f"{words} at args[1].loss")):
        normalize_call([0, {"loss": value}], {}, LIMIT)
    with pytest.raises(ValueError, match=re.escape(f"{words} at return value")):
        normalize(value, "return value")


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        ({1: "a", "1": "b"}, TypeError, "<class 'int'> as a key at args[0].by[1]; keys must"),
        ({b"k": 1}, TypeError, "<class 'bytes'> as a key at args[0].by[b'k']"),
        ({None: 1}, TypeError, "<class 'NoneType'> as a key at args[0].by[None]"),
        ({(1, 2): 1}, TypeError, "<class 'tuple'> as a key at args[0].by[(1, 2)]"),
        ({Size.BIG: 1}, TypeError, "as a key at args[0].by[<Size.BIG: 3>]"),
        ({"a\0": 1}, ValueError, r"U+0000 in text at args[0].by['a\x00']"),
        ({"\ud800": 1}, ValueError, r"lone surrogate U+D800 in text at args[0].by['\ud800']"),
        ({"one": 1, Loner("one"): 2}, ValueError, "two keys with the same text at args[0].by"),
    ],
)
def test_keys_are_text(value, error, told):
    with pytest.raises(error, match=re.escape(told)):
        normalize_call([{"by": value}], {}, LIMIT)


def test_paths_are_readable_and_never_long():
    with pytest.raises(TypeError, match=re.escape("at kwargs['e-mail'].to[0]")):
        normalize_call((), {"e-mail": {"to": [1j]}}, LIMIT)
    value: Any = 1j
    for _ in range(100):
        value = {"k" * 1000: [value]}
    with pytest.raises(TypeError, match="…") as caught:
        normalize(value, "value")
    assert len(str(caught.value)) < 2_000
    # Told in a log or a column, the message needs no care of its own.
    with pytest.raises(ValueError, match="U") as caught:
        normalize({"\ud800\0": 1}, "value")
    assert storable_text(str(caught.value), 1000) == str(caught.value)


def test_circles_are_named():
    ring: list[Any] = [1]
    ring.append({"back": ring})
    with pytest.raises(ValueError, match=r"circular, it contains itself at args\[0\]\[1\].back$"):
        normalize_call([ring], {}, LIMIT)
    selfish: dict[str, Any] = {}
    selfish["me"] = selfish
    with pytest.raises(ValueError, match=r"circular, it contains itself at kwargs.whole.me$"):
        normalize_call((), {"whole": selfish}, LIMIT)


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_depth_is_limited_and_no_recursion_error(kind):
    deep = nested(values.MAX_DEPTH, kind)
    assert normalize(deep, "value") == deep
    for levels in (values.MAX_DEPTH + 1, 50_000):
        with pytest.raises(ValueError, match="nested deeper than 200 levels at value"):
            normalize(nested(levels, kind), "value")


def test_sequences_of_themselves_end_at_the_depth():
    with pytest.raises(ValueError, match="nested deeper"):
        normalize(collections.UserString("text"), "value")


def test_a_class_that_hides_its_name():
    class Rude(type):
        def __repr__(cls):
            raise RuntimeError

    class Thing(metaclass=Rude):
        pass

    with pytest.raises(TypeError, match=r"Unsupported type: <class '.*Thing'> at value"):
        normalize(Thing(), "value")


def test_an_error_in_a_values_own_method_is_passed_on():
    class Broken(collections.UserDict):
        def items(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        normalize(Broken(), "value")


# Size


@pytest.mark.parametrize(
    "value", ["x" * 500, "é" * 250, '"' * 250, "\n" * 250, [1e300], [-0.0] * 60, [2**63] * 20]
)
def test_the_limit_is_the_json_text_in_utf8(value):
    args, kwargs = [value], {"key": value}
    exact = {1e300: "1" + "0" * 300 + ".0", -0.0: "-1e-400"}
    text = json.dumps(value, ensure_ascii=False)
    for number, written in exact.items():
        text = text.replace(repr(number), written)
    size = len(f"[{text}]".encode()) + len(f'{{"key": {text}}}'.encode())
    assert normalize_call(args, kwargs, size) == (args, kwargs)
    with pytest.raises(ValueError, match=f"args and kwargs are more than {size - 1} bytes"):
        normalize_call(args, kwargs, size - 1)
    alone = len(text.encode())
    assert normalize(value, "return value", alone) == value
    with pytest.raises(ValueError, match=f"return value is .*{alone - 1}"):
        normalize(value, "return value", alone - 1)


@unhurried
@given(JSON, JSON)
def test_the_limit_is_exact_for_every_value(one, two):
    size = sum(
        len(values._exact(json.dumps(part, ensure_ascii=False)).encode())
        for part in ([one], {"two": two})
    )
    normalize_call([one], {"two": two}, size)
    with pytest.raises(ValueError, match="bytes of JSON"):
        normalize_call([one], {"two": two}, size - 1)


def test_the_largest_argument_is_named():
    with pytest.raises(ValueError, match=r"1000 bytes .*args\[1\] has 602 of 1\d\d\d bytes"):
        normalize_call(["x" * 100, "y" * 600], {"z": "z" * 500}, 1000)
    with pytest.raises(ValueError, match=r"kwargs.z alone is more than that"):
        normalize_call(["x" * 100], {"z": ["z" * 5_000_000]}, LIMIT)


def test_few_bytes_that_unfold_to_many_are_refused_at_once():
    unfolding: Any = "x"
    for _ in range(100):
        unfolding = [unfolding, unfolding]
    with pytest.raises(ValueError, match=r"args\[0\] alone is more"):
        normalize_call([unfolding], {}, 20_000)
    with pytest.raises(ValueError, match="return value is more than 20000 bytes"):
        normalize(["x" * 5_000] * 1_000_000, "return value", 20_000)

    class Endless(collections.UserList):
        def __iter__(self):
            while True:
                yield 1

    with pytest.raises(ValueError, match="return value is more"):
        normalize(Endless(), "return value", 20_000)


# JSON as text


@unhurried
@given(JSON)
def test_text_reads_back_exactly(value):
    assert same(json.loads(values.dumps(value)), value)
    assert json.dumps(value, cls=values.ExactJSONEncoder) == values.dumps(value)
    assert values.dumps(value).isascii()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "10000000000000000.0"),
        (6.022e23, "602200000000000000000000.0"),
        (-1.5e300, "-15" + "0" * 299 + ".0"),
        (-0.0, "-1e-400"),
        ([-0.0, -0.05], "[-1e-400, -0.05]"),
        (0.5, "0.5"),
        (1e-7, "1e-07"),
        (["1e+16", -0.0, 'a"-0.0'], r'["1e+16", -1e-400, "a\"-0.0"]'),
        (["\\", 1e16, '\\"'], r'["\\", 10000000000000000.0, "\\\""]'),
        ({"-0.0": "é e+1"}, r'{"-0.0": "\u00e9 e+1"}'),
    ],
)
def test_numbers_are_written_so_that_jsonb_keeps_them(value, text):
    assert values.dumps(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_text_never_holds_what_is_not_json(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        values.dumps(value)


# The column


@pytest.fixture
def box(db):
    """The one row of an empty table, which goes with the test's transaction."""
    field = Box._meta.get_field("value")
    check = field.db_check(connection)
    column = f"value {field.db_type(connection)} {f'CHECK ({check})' if check else ''}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE test_values_box (id integer PRIMARY KEY, {column})")
    box = Box.objects.create(pk=1)
    yield box
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE test_values_box")


ODD = [
    6.022e23,
    1e16,
    -1e16,
    0.0,
    -0.0,
    1.0,
    1e-7,
    0.1,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1.7976931348623157e308,
    9007199254740993,
    10**300,
    -(10**4299),
    True,
    "",
    "é\U0001f40d\u2028\x1f\"\\'",
    [],
    {},
    [None, [None]],
    {"": {"é": None, "a b": [1.0, 1, True]}},
]


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:30])
def test_stored_and_read_back_exactly(box, value):
    for stored in (value, [value], {"key": [value]}):
        Box.objects.filter(pk=1).update(value=stored)
        assert same(Box.objects.get().value, stored)
        box.value = stored
        box.save()
        box.refresh_from_db()
        assert same(box.value, stored)


@unhurried
@given(JSON.filter(lambda value: value is not None))
def test_whatever_is_accepted_comes_back_exactly(box, value):
    accepted = normalize(value, "value")
    Box.objects.filter(pk=1).update(value=accepted)
    assert same(Box.objects.get().value, value)
    # The whole value and a value under a key can be asked for.
    assert Box.objects.filter(value=accepted).exists()


def test_the_deepest_value_is_stored(box):
    for kind in ("list", "dict"):
        deep = normalize(nested(values.MAX_DEPTH, kind), "value")
        Box.objects.filter(pk=1).update(value=deep)
        assert Box.objects.get().value == deep


def test_none_is_null(box):
    assert Box.objects.filter(value__isnull=True).count() == 1
    box.value = [None]
    box.save()
    assert Box.objects.filter(value__isnull=True).count() == 0
    Box.objects.update(value=None)
    box.refresh_from_db()
    assert box.value is None
    assert Box.objects.filter(value__isnull=True).count() == 1


@pytest.mark.parametrize(
    "value",
    [1, 1.5, 1e16, 6.022e23, -0.0, 1e-7, 5e-324, 9007199254740993, "text", "é", True, [1e16], {}],
    ids=told,
)
@pytest.mark.parametrize("key", ["order_id", "größe", "a b", "e+16"])
def test_rows_are_found_by_key(box, key, value):
    box.value = {key: value, "inner": [{"x": value}]}
    box.save()
    assert Box.objects.filter(**{f"value__{key}": value}).count() == 1
    assert Box.objects.filter(**{f"value__{key}__in": [value, "other"]}).count() == 1
    assert Box.objects.filter(value__inner__0__x=value).count() == 1
    assert Box.objects.filter(value__has_key=key).count() == 1
    assert Box.objects.filter(**{f"value__{key}": "other"}).count() == 0


def test_numbers_are_compared_by_key(box):
    box.value = {"x": 6.022e23}
    box.save()
    assert Box.objects.filter(value__x__gt=1e16, value__x__lt=1e300).count() == 1
    assert Box.objects.filter(value__x__gt=1e24).count() == 0


def test_what_is_no_json_stops_before_the_database(box):
    box.value = [float("nan")]
    with transaction.atomic(), pytest.raises(ValueError, match="not JSON compliant"):
        box.save()
    assert Box.objects.get().value is None


def test_migrations_know_the_field_without_its_encoder():
    field = ExactJSONField(null=True, default=list)
    _, path, args, kwargs = field.deconstruct()
    assert (path, args) == ("jobqueue.fields.ExactJSONField", [])
    assert kwargs == {"null": True, "default": list}
    assert ExactJSONField(*args, **kwargs).encoder is values.ExactJSONEncoder
    assert field.clone().deconstruct()[1:] == (path, args, kwargs)
    assert "encoder" not in MigrationWriter.serialize(field)[0]


def test_circular_json_is_refused_whatever_encodes_it():
    whole: dict[str, object] = {}
    whole["me"] = [whole]
    with pytest.raises(ValueError, match="Circular"):
        values.dumps(whole)
