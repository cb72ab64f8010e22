"""Ids of queued jobs in Redis, in the order in which they should start: a hint that may get lost, never the truth.

Each queue is a sorted set. Who makes a job claimable pushes its id after the commit; a worker pops ids and claims
those rows, if they are still queued. What Redis loses, doubles or invents costs a look at the database.
"""

from jobqueue.ready.line import Breaker, Line, Misused, Unreachable
from jobqueue.ready.pushing import breaker, cancelled, push
from jobqueue.ready.shelf import Ready, Shelf, shelf_on

__all__ = [
    "Breaker",
    "Line",
    "Misused",
    "Ready",
    "Shelf",
    "Unreachable",
    "breaker",
    "cancelled",
    "push",
    "shelf_on",
]
