"""What may be stored as arguments and results: plain values, and the exact JSON that they become."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.db import models
from django.utils.functional import Promise

#: A value nested deeper than this is refused, far from where Python or a database would give up.
MAX_DEPTH = 200
#: Python refuses to turn longer integers into text, and to read them back.
MAX_DIGITS = 4300
#: The most `normalize` accepts unless it is told otherwise, in bytes: well below what jsonb can
#: hold.
HARD_LIMIT = 100_000_000

_HINTS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((models.Model,), "pass its primary key"),
    ((models.QuerySet,), "pass a list of primary keys"),
    ((enum.Enum,), "pass its .value"),
    ((datetime.date, datetime.time), "pass value.isoformat()"),
    ((datetime.timedelta,), "pass value.total_seconds()"),
    ((Decimal, uuid.UUID, pathlib.PurePath, Promise), "pass str(value)"),
    ((Iterable,), "pass a list"),
)


class _Refused(Exception):
    """Travels from the culprit up to the caller and gathers the way: paths cost nothing before."""

    def __init__(self, kind: type[Exception], words: str, hint: str = "") -> None:
        super().__init__(words)
        self.kind, self.words, self.hint = kind, words, hint
        self.way: list[tuple[int, Any]] = []  # (id of the container, index or key), innermost first


class _TooDeep(_Refused):
    pass


class _TooBig(Exception):
    pass


def normalize(value: Any, path: str, limit: int = HARD_LIMIT) -> Any:
    """`value` as plain JSON values: a copy that shares nothing mutable with it.

    Accepts what Django's normalize_json accepts and converts it in the same way: mappings become
    dicts, sequences lists, bytes text. Instances of subclasses of str, int and float (enums, safe
    strings) become plain ones.

    Everything else is a TypeError or ValueError that names the culprit's path below `path`: other
    types, keys that are not text, NaN and infinity, U+0000, lone surrogates, circular structures
    and those nested deeper than 200 levels, integers of more than 4,300 digits, more than `limit`
    bytes of JSON. What a value's own methods raise is passed on.
    """
    room = [limit]
    try:
        plain = _plain(value, 0, room)
        if _may_exceed(limit, room) and (size := _size(plain)) > limit:
            words = f"Unsupported value: {path} is {size} bytes of JSON, more than {limit}"
            raise ValueError(words)
    except _TooBig:
        raise ValueError(f"Unsupported value: {path} is more than {limit} bytes of JSON") from None
    except _Refused as refused:
        raise _told(refused, path) from None
    return plain


def normalize_call(
    args: Sequence[Any], kwargs: Mapping[str, Any], max_payload: int
) -> tuple[list[Any], dict[str, Any]]:
    """A call's arguments as `normalize` makes them, at most `max_payload` bytes of JSON together.

    The errors are those of `normalize`, with paths such as `args[0].lines[3]` and
    `kwargs.order_id`; the one about the size names the largest argument.
    """
    room = [max_payload]
    path = "args"
    try:
        plain_args = _plain(args, 0, room) if args else []
        path = "kwargs"
        plain_kwargs = _plain(kwargs, 0, room) if kwargs else {}
        if _may_exceed(max_payload, room) and _size(plain_args) + _size(plain_kwargs) > max_payload:
            raise _TooBig
    except _TooBig:
        raise _too_much(args, kwargs, max_payload) from None
    except _Refused as refused:
        raise _told(refused, path) from None
    return plain_args, plain_kwargs


def _plain(value: Any, depth: int, room: list[int]) -> Any:
    """One pass: check, convert, copy. `room` holds what is left of the limit, at most."""
    cls = type(value)
    if cls is str:
        if not value.isascii() or "\0" in value:
            _check_text(value)
        room[0] -= len(value)
        if room[0] < 0:
            raise _TooBig
        return value
    if cls is int:
        return value if -(2**63) <= value < 2**63 else _big_integer(value, room)
    if value is None or cls is bool:
        return value
    if cls is float:
        return value if -1e16 < value < 1e16 else _big_float(value, room)
    is_mapping = cls is dict
    if not is_mapping and cls is not list and cls is not tuple:
        is_mapping = isinstance(value, Mapping)
        if not is_mapping:
            if (scalar := _scalar(value, cls)) is not None:
                return _plain(scalar, depth, room)
            if not isinstance(value, Sequence):
                raise _Refused(TypeError, f"Unsupported type: {_class_words(cls)}", _hint(value))
    if depth >= MAX_DEPTH:
        raise _TooDeep(ValueError, f"Unsupported value: nested deeper than {MAX_DEPTH} levels")
    items: list[Any] = []
    step: Any = None
    try:
        if not is_mapping:
            for item in value:
                room[0] -= 1
                if room[0] < 0:
                    raise _TooBig
                items.append(_plain(item, depth + 1, room))
            return items
        pairs: dict[str, Any] = {}
        count = 0
        for step, item in value.items():
            key = step if type(step) is str else _key(step)
            if not key.isascii() or "\0" in key:
                _check_text(key)
            room[0] -= len(key) + 1
            if room[0] < 0:
                raise _TooBig
            pairs[key] = _plain(item, depth + 1, room)
            count += 1
        if len(pairs) != count:
            # Keys of a str subclass may differ where their texts do not.
            raise _Refused(ValueError, "Unsupported value: two keys with the same text")
        return pairs
    except _Refused as refused:
        refused.way.append((id(value), step if is_mapping else len(items)))
        raise


def _scalar(value: Any, cls: type) -> Any:
    """The str, int, float or bool that `value` is, by inheritance or as a lazy object; or None."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise _Refused(
                ValueError, f"Unsupported value: {_class_words(cls)}", "bytes must be UTF-8"
            ) from None
    if isinstance(value, bool):
        return bool(value)
    # The base's own method: a subclass may have changed it (str() of an enum's member is its name).
    if isinstance(value, str):
        return str.__str__(value if issubclass(cls, str) else value.__str__())
    if isinstance(value, int):
        return int.__index__(value if issubclass(cls, int) else value.__index__())
    if isinstance(value, float):
        return float.__float__(value if issubclass(cls, float) else value.__float__())
    return None


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    # Converting it could make two keys one: {1: "a", "1": "b"}.
    words = f"Unsupported type: {_class_words(type(key))} as a key"
    raise _Refused(TypeError, words, "keys must be str")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        words = f"Unsupported value: lone surrogate U+{code:04X} in text"
        hint = "decode bytes and file names with errors='replace'"
        raise _Refused(ValueError, words, hint) from None
    if "\0" in text:
        raise _Refused(ValueError, "Unsupported value: U+0000 in text", "no database stores it")


def _big_integer(value: int, room: list[int]) -> int:
    bits = value.bit_length()
    room[0] -= bits // 4
    if bits > 2000:  # 600 digits; a process may set its own limit, from 640 on
        digits = min(sys.get_int_max_str_digits() or MAX_DIGITS, MAX_DIGITS)
        if abs(value) >= 10**digits:
            words = f"Unsupported value: an integer of more than {digits} digits"
            raise _Refused(ValueError, words, "pass hex(value)")
    return value


def _big_float(value: float, room: list[int]) -> float:
    room[0] -= 16
    if value - value != 0:  # true of NaN and both infinities
        words = f"Unsupported value: {value!r}"
        raise _Refused(ValueError, words, "JSON has no NaN or infinity, pass None or str(value)")
    return value


def _may_exceed(limit: int, room: list[int]) -> bool:
    # Each unit taken from the room is 32 bytes of JSON at most (a short float after an empty key),
    # so that ordinary payloads need no measuring.
    return (limit - room[0]) * 32 + 64 > limit


def _size(plain: Any) -> int:
    return len(_exact(_encode_utf8(plain)).encode())


def _too_much(args: Sequence[Any], kwargs: Mapping[str, Any], limit: int) -> ValueError:
    paths = [(f"args[{index}]", value) for index, value in enumerate(args)]
    paths += [("kwargs" + _step(key), value) for key, value in kwargs.items()]
    total, largest, culprit = 0, -1, "args"
    for path, value in paths:
        try:
            size = _size(_plain(value, 1, [limit]))
        except _TooBig:
            culprit, sizes = path, "alone is more than that"
            break
        except _Refused as refused:
            return ValueError(str(_told(refused, path)))
        total += size
        if size > largest:
            culprit, largest = path, size
    else:
        sizes = f"has {largest} of {total} bytes"
    return ValueError(
        f"Unsupported value: args and kwargs are more than {limit} bytes of JSON (max_payload), "
        f"{culprit} {sizes}; store the data elsewhere and pass its key"
    )


def _told(refused: _Refused, path: str) -> Exception:
    way = refused.way[::-1]
    if isinstance(refused, _TooDeep):
        seen: set[int] = set()
        for index, (container, _) in enumerate(way):
            if container in seen:
                refused.words, way = "Unsupported value: circular, it contains itself", way[:index]
                break
            seen.add(container)
    steps = [_step(step) for _, step in way]
    if len(steps) > 20:
        steps[10:-5] = ["…"]
    hint = f"; {refused.hint}" if refused.hint else ""
    return refused.kind(f"{refused.words} at {path}{''.join(steps)}{hint}")


def _step(step: Any) -> str:
    if isinstance(step, str) and step.isidentifier() and len(step) <= 80:
        return f".{step}"
    try:
        text = repr(step)
    except Exception:  # the culprit has already been found, and its type is named
        text = "…"
    return f"[{text if len(text) <= 80 else text[:79] + '…'}]"


def _class_words(cls: type) -> str:
    try:
        return str(cls)
    except Exception:  # a metaclass may do what it likes; type's own words then
        return type.__repr__(cls)


def _hint(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        return "pass dataclasses.asdict(value)"
    return next((hint for classes, hint in _HINTS if isinstance(value, classes)), "")


# JSON as text

# ASCII, because SQLite compares the keys in a path with those in the text as they are written, and
# Django writes the former in ASCII.
_ascii = json.JSONEncoder(allow_nan=False)
# An encoder makes this anew for each value, which takes longer than most values do. It does not look
# for circles (no markers); where there are some, or where Python has no such thing, the encoder is asked.
_maker: Any = getattr(json.encoder, "c_make_encoder", None)
_chunks = _maker and _maker(
    None,
    _ascii.default,
    json.encoder.encode_basestring_ascii,
    None,
    ": ",
    ", ",
    False,
    False,
    False,
)
_encode_utf8 = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.]*e\+[0-9]+|-0\.0(?![0-9])')


def dumps(value: Any) -> str:
    """JSON that comes back equal and of the same types, from jsonb and SQLite's text alike.

    jsonb keeps numbers as decimals: 1e16 would come back as an int, 6.022e23 as another one, and
    -0.0 without its sign. Such floats are written out with a fraction, and -0.0 as a number that
    every reader rounds to it. ValueError for NaN and infinity, TypeError for what is not JSON.
    """
    if value == {} or value == []:  # half of all arguments
        return "{}" if isinstance(value, dict) else "[]"
    if _chunks is None:
        return _exact(_ascii.encode(value))
    try:
        return _exact("".join(_chunks(value, 0)))
    except RecursionError:
        return _exact(_ascii.encode(value))


class ExactJSONEncoder(json.JSONEncoder):
    """`dumps` for those who ask for an encoder class; its options change nothing."""

    def encode(self, o: Any) -> str:
        if isinstance(o, Unreadable):
            raise TypeError("what could not be read must not be written over what is stored")
        return dumps(o)


class Unreadable(str):
    """Stands where JSON could not be read by this process: a text for people, that says why."""

    reason: str

    def __new__(cls, error: Exception) -> Unreadable:
        reason = str(error) or type(error).__name__
        self = super().__new__(cls, f"(cannot be read here: {reason})")
        self.reason = reason
        return self


def loads(text: str | bytes) -> Any:
    """The value of stored JSON, or an Unreadable: another process may have stored an integer of more
    digits than this one reads, and other hands than ours anything."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unreadable(error)


def as_mapping(value: Any) -> dict[str, Any]:
    """A value that should be a dict, or what is there in its place, in one."""
    return value if isinstance(value, dict) else {"unreadable": str(value)}


def _exact(text: str) -> str:
    if "e+" in text or "-0.0" in text:  # rare, also inside strings, which the pattern passes over
        return _TOKEN.sub(_number, text)
    return text


def _number(match: re.Match[str]) -> str:
    token = match[0]
    if token[0] == '"':
        return token
    if token == "-0.0":
        return "-1e-400"
    digits = format(Decimal(token), "f")
    return digits if "." in digits else digits + ".0"
