"""How a job moves: every transition, and nothing outside this room writes a status."""

from jobqueue.lifecycle.announcing import listen
from jobqueue.lifecycle.claiming import Beat, claim, heartbeat, heartbeat_alone
from jobqueue.lifecycle.enqueueing import Accepted, NewJob, enqueue
from jobqueue.lifecycle.exchanging import Exchange, exchange
from jobqueue.lifecycle.interventions import (
    Counts,
    cancel,
    cancel_many,
    requeue,
    requeue_many,
    run_now,
)
from jobqueue.lifecycle.notes import Note, take_notes
from jobqueue.lifecycle.pruning import Pruned, prune
from jobqueue.lifecycle.recovering import (
    due,
    expired,
    hand_back,
    lose,
    promote,
    recover,
    time_out,
    was_held_up,
)
from jobqueue.lifecycle.settling import Settled, atomically, settle
from jobqueue.lifecycle.states import TRANSITIONS, Event, Transition, allows, refusal

__all__ = [
    "TRANSITIONS",
    "Accepted",
    "Beat",
    "Counts",
    "Event",
    "Exchange",
    "NewJob",
    "Note",
    "Pruned",
    "Settled",
    "Transition",
    "allows",
    "atomically",
    "cancel",
    "cancel_many",
    "claim",
    "due",
    "enqueue",
    "exchange",
    "expired",
    "hand_back",
    "heartbeat",
    "heartbeat_alone",
    "listen",
    "lose",
    "promote",
    "prune",
    "recover",
    "refusal",
    "requeue",
    "requeue_many",
    "run_now",
    "settle",
    "take_notes",
    "time_out",
    "was_held_up",
]
