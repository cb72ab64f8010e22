"""How a job moves: every transition, and nothing outside this room writes a status."""

from jobqueue.lifecycle.announcing import listen
from jobqueue.lifecycle.batches import Counts
from jobqueue.lifecycle.claiming import Beat, claim, heartbeat, heartbeat_alone
from jobqueue.lifecycle.enqueueing import Accepted, NewJob, enqueue
from jobqueue.lifecycle.exchanging import Exchange, exchange
from jobqueue.lifecycle.interventions import (
    cancel,
    cancel_many,
    requeue,
    requeue_many,
    run_now,
    run_now_many,
)
from jobqueue.lifecycle.notes import Note, take_notes
from jobqueue.lifecycle.pruning import Pruned, prune
from jobqueue.lifecycle.purging import purge_many
from jobqueue.lifecycle.recovering import (
    due,
    expired,
    hand_back,
    lose,
    promote,
    recover,
    take_back,
    time_out,
    was_held_up,
)
from jobqueue.lifecycle.settling import Settled, atomically, settle
from jobqueue.lifecycle.states import TRANSITIONS, Event, Transition, allows, purge_refusal, refusal

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
    "purge_many",
    "purge_refusal",
    "recover",
    "refusal",
    "requeue",
    "requeue_many",
    "run_now",
    "run_now_many",
    "settle",
    "take_back",
    "take_notes",
    "time_out",
    "was_held_up",
]
