"""A worker's hold on its database: what cannot be done now is tried again later, and nothing is dropped."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

logger = logging.getLogger("jobqueue")

#: The first and the longest pause, in seconds, between two tries to reach the database.
PAUSES = (0.05, 2.0)


class Link:
    """The queue's own connection in this thread. It is held whatever CONN_MAX_AGE says.

    `broken` until something has succeeded, and again from an error on. `on_reach` is called before
    anything else once the database may be reached again.
    """

    def __init__(self, using: str, name: str, on_reach: Callable[[], None]) -> None:
        self.broken = True
        self._using = using
        self._name = name
        self._on_reach = on_reach
        self._pause = PAUSES[0]
        self.retry_at = 0.0

    def reach(self, work: Callable[[], Any]) -> bool:
        """Do `work`, unless it is too early to try again; whether it was done."""
        if time.monotonic() < self.retry_at:
            return False
        try:
            if self.broken:
                self._on_reach()
            work()
        except (DatabaseError, InterfaceError, OSError) as error:
            self.lose(error)
            return False
        if self._pause > PAUSES[0]:
            logger.warning("Worker %s has reached the database again.", self._name)
        self.broken = False
        self._pause = PAUSES[0]
        return True

    def lose(self, error: Exception) -> None:
        """Give the connection up, and wait a little longer each time before the next."""
        if not self.broken or self._pause == PAUSES[0]:
            logger.warning(
                "Worker %s cannot use the database and will try again: %s",
                self._name,
                str(error).strip() or type(error).__name__,
            )
        self.broken = True
        with contextlib.suppress(DatabaseError, InterfaceError):
            connections[self._using].close()
        self.retry_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, PAUSES[1])
