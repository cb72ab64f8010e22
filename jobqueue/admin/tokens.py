"""What stands in the address and in the form of a confirmation: signed, for one person and one verb, for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core import signing

#: Seconds for which a token is good.
VALID = 15 * 60

_SALT = "jobqueue.admin.confirming"


class Stale(Exception):
    """The token is of no use: forged, too old, somebody else's, or for something else."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """What a preview showed: the moment, by the database's clock, the newest job there was, and how many
    there were in each status. Only what was there then is changed. `offered` is how many of them it said
    would change."""

    moment: datetime
    newest: UUID
    statuses: Mapping[str, int]
    offered: int = 0

    @property
    def chosen(self) -> int:
        """How many jobs the preview showed."""
        return sum(self.statuses.values())


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody wants to change: rows by their ids, or all jobs that a query string of the list finds.

    `back` is the path they came from. `frozen` is there in the token of a form, not in that of an address.
    """

    ids: tuple[str, ...] = ()
    query: str | None = None
    back: str = ""
    frozen: Frozen | None = field(default=None)

    def after(self, frozen: Frozen) -> Choice:
        """The same choice, once it has been shown."""
        return replace(self, frozen=frozen)


def write(choice: Choice, verb: str, user: Any) -> str:
    """The token for this choice, good for this verb and this person alone."""
    content: dict[str, Any] = {"v": verb, "u": str(user.pk), "b": choice.back}
    if choice.query is None:
        content["i"] = list(choice.ids)
    else:
        content["q"] = choice.query
    if choice.frozen:
        content["f"] = [
            choice.frozen.moment.isoformat(),
            choice.frozen.newest.hex,
            dict(choice.frozen.statuses),
            choice.frozen.offered,
        ]
    return signing.dumps(content, salt=_SALT, compress=True)


def read(token: str, verb: str, user: Any) -> Choice:
    """The choice in a token; Stale if it is not good for this verb and this person any more."""
    try:
        content = signing.loads(token, salt=_SALT, max_age=VALID)
    except signing.SignatureExpired:
        raise Stale("its time is over") from None
    except signing.BadSignature:
        raise Stale("its signature is wrong") from None
    if content["u"] != str(user.pk):
        raise Stale("it was made for somebody else")
    if content["v"] != verb:
        raise Stale("it was made for another verb")
    frozen = None
    if "f" in content:
        moment, newest, statuses, offered = content["f"]
        frozen = Frozen(datetime.fromisoformat(moment), UUID(newest), statuses, offered)
    return Choice(tuple(content.get("i", ())), content.get("q"), content["b"], frozen)
