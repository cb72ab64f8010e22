"""What must be true of each job after a run, however it went. Nothing here uses what the queue says of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.chaos.audit import Move
from tests.chaos.excuses import Excuses
from tests.chaos.history import Execution, History

FINAL = {"completed", "failed", "cancelled"}
WAITING = {"scheduled", "queued"}
#: The endings of an attempt that the log tells of, by what they cost.
SPENT = {"errored", "timed_out", "lost"}
GIVEN_BACK = {"snoozed", "not_found", "released"}
#: How an attempt may end whose body never began.
WITHOUT_A_BODY = {"lost", "released", "timed_out", "cancelled"}
#: Tasks that may fail for good with attempts left.
HOPELESS = {"hopeless"}

LEGAL = {
    ("scheduled", "queued"),
    ("queued", "processing"),
    ("processing", "processing"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "scheduled"),
    ("processing", "queued"),
    *((status, "cancelled") for status in ("scheduled", "queued", "processing", "cancelled")),
    *((status, "queued") for status in FINAL),
}


def check(job: History, excuses: Excuses) -> Iterator[str]:
    """Every promise that was broken for this job, in words."""
    if job.row is None:
        if job.executions:
            yield "was executed without ever having been accepted"
        return
    if job.row["status"] not in FINAL:
        yield f"never ended: it is {job.row['status']}"
    if job.row["lease_owner"] is not None:
        yield "still has an owner"
    yield from _moves(job)
    yield from _log(job)
    yield from _executions(job, excuses)
    yield from _attempts(job)
    yield from _cancels(job, excuses)
    yield from _told(job, excuses)
    if job.kind == "writing":
        done = sum(each.now.status == "completed" and ends(each) for each in job.moves)
        if job.effects != done:
            yield f"completed {done} times with {job.effects} effects"
    elif job.effects:
        yield f"has {job.effects} effects of another's"


def ends(move: Move) -> bool:
    """Whether the attempt ends with this move."""
    return (
        move.was is not None and move.was.status == "processing" and move.now.status != "processing"
    )


def _moves(job: History) -> Iterator[str]:
    """The row moved only as it may: one claim after the other, and each ended by its own owner."""
    before: Move | None = None
    for move in job.moves:
        was, now = move.was, move.now
        if before is None:
            if was is not None or now.status not in WAITING:
                yield f"began as {now.status}"
            before = move
            continue
        assert was is not None
        if was != before.now:
            yield f"was {was} after it had become {before.now}"
        before = move
        steps = (was.status, now.status)
        if steps not in LEGAL:
            yield f"went from {was.status} to {now.status}"
        claimed = steps == ("queued", "processing")
        if now.attempt - was.attempt != claimed:
            yield f"counted {was.attempt} -> {now.attempt} from {was.status} to {now.status}"
        if claimed and now.owner is None:
            yield "was claimed by nobody"
        if steps == ("processing", "processing") and now.owner != was.owner:
            yield "went from one owner to another without a claim"
        if steps == ("cancelled", "cancelled") and now.owner not in (was.owner, None):
            yield "was cancelled and got another owner"
        if steps == ("cancelled", "queued") and was.owner is not None:
            yield "was queued again while its cancelled run had not let go"
        if ends(move) and now.status != "cancelled" and now.owner is not None:
            yield f"is {now.status} and still has an owner"
        if now.status == "completed" and was.status != "completed":
            yield from _fence(job, move)


def _fence(job: History, move: Move) -> Iterator[str]:
    """A completion is the work of the attempt that had the lease."""
    assert move.was is not None
    wanted = {"attempt": move.was.attempt, "owner": move.was.owner}
    if move.now.returned != wanted:
        yield f"was completed by {move.now.returned}, but belonged to {wanted}"
    run = job.run_of(move.was.attempt)
    if run is None or run.how != "returned" or run.owner != move.was.owner:
        yield f"was completed in attempt {move.was.attempt}, whose body never returned"


def _log(job: History) -> Iterator[str]:
    """Whatever is out of the ordinary stands in the log, once."""
    said = Counter((line["event"], line["attempt"]) for line in job.log)
    for move in job.moves:
        if not ends(move) or move.now.status == "completed" or move.was is None:
            continue
        attempt = move.was.attempt
        if move.now.status == "cancelled":
            continue
        events = {e for e in SPENT | GIVEN_BACK if said[e, attempt]}
        given_back = move.now.given_back - move.was.given_back
        if len(events) != 1 or sum(said[e, attempt] for e in events) != 1:
            yield f"attempt {attempt} ended as {move.now.status}, and the log says {events or 'nothing'}"
        elif given_back != (events <= GIVEN_BACK):
            yield f"attempt {attempt} was {events}, and {given_back} were given back"
        elif (move.now.status, job.kind in HOPELESS) == ("failed", False) and (
            attempt < move.was.max_attempts
        ):
            yield f"failed in attempt {attempt} of {move.was.max_attempts}"
        if move.now.max_attempts - move.was.max_attempts != given_back:
            yield f"attempt {attempt}: max_attempts {move.was.max_attempts} -> {move.now.max_attempts}"
    endings = sum(
        ends(move) and move.now.status not in ("completed", "cancelled") for move in job.moves
    )
    told = sum(count for (event, _), count in said.items() if event in SPENT | GIVEN_BACK)
    if told > endings:
        yield f"the log tells of {told} endings, and there were {endings}"
    pairs = [(move.was.status, move.now.status) for move in job.moves if move.was]
    cancels = sum(now == "cancelled" != was for was, now in pairs)
    requeues = sum(was in FINAL and now == "queued" for was, now in pairs)
    for event, times in (("cancelled", cancels), ("requeued", requeues)):
        logged = sum(line["event"] == event for line in job.log)
        if logged != times:
            yield f"was {event} {times} times, and the log tells of {logged}"


def _executions(job: History, excuses: Excuses) -> Iterator[str]:
    """Each execution belongs to a claim of its own, and ran while nobody else's did."""
    claims = {
        move.now.attempt: move
        for move in job.moves
        if move.was and (move.was.status, move.now.status) == ("queued", "processing")
    }
    last = {move.was.attempt: move for move in job.moves if move.was and ends(move)}
    seen: set[int] = set()
    for run in job.executions:
        claim = claims.get(run.attempt)
        if claim is None or claim.now.owner != run.owner or claim.now.pid != run.pid:
            yield f"attempt {run.attempt} was executed by {run.owner} ({run.pid}), not its owner"
        if run.attempt in seen:
            yield f"attempt {run.attempt} was executed twice"
        seen.add(run.attempt)
    for attempt, claim in claims.items():
        end = last.get(attempt)
        how = ending(job, attempt, end)
        if attempt not in seen and how not in WITHOUT_A_BODY and job.kind != "writing":
            yield f"attempt {attempt} ended as {how} and was never executed"
        crashed = any(
            line["event"] == "crashed" and line["attempt"] == attempt for line in job.said
        )
        if crashed and how not in ("lost", "cancelled"):
            yield f"attempt {attempt} killed its process and ended as {how}"
        if how == "lost" and end is not None and not excuses.for_losing(end):
            yield f"attempt {attempt} was taken from a healthy worker (pid {claim.now.pid})"
    ordered = sorted(job.executions, key=lambda run: run.attempt)
    for first, second in pairwise(ordered):
        yield from _overlap(job, first, second, excuses)


def ending(job: History, attempt: int, end: Move | None) -> str:
    """How an attempt ended, which `end` has ended: in the words of the log, or as the row says."""
    if end is None:
        return "nothing"
    if end.now.status in ("cancelled", "completed"):
        return end.now.status
    events = [
        line["event"]
        for line in job.log
        if line["attempt"] == attempt and line["event"] in SPENT | GIVEN_BACK
    ]
    return events[0] if events else end.now.status


def _overlap(job: History, first: Execution, second: Execution, excuses: Excuses) -> Iterator[str]:
    """While an execution ran that had a lease, no other began."""
    until = first.ended
    if until is None:
        # It died at the latest when somebody saw its process dead.
        until = excuses.dead.get(first.pid, second.began)
    if until <= second.began:
        return
    held = [move for move in job.moves if move.was and move.was.attempt == first.attempt]
    end = next((move for move in held if ends(move) or move.now.owner is None), None)
    lease = end.was.expires_at if end and end.was else None
    if lease is None or lease > second.began:
        yield f"attempts {first.attempt} and {second.attempt} ran side by side under leases"
    elif not excuses.for_expiry(first.pid, lease, second.began):
        yield f"attempt {second.attempt} ran beside {first.attempt}, whose worker was well"


def _attempts(job: History) -> Iterator[str]:
    """No more attempts than were allowed, whoever died."""
    row = job.row
    if row["attempt"] > row["max_attempts"]:
        yield f"had attempt {row['attempt']} of {row['max_attempts']}"
    if job.moves:
        requeues = sum(line["event"] == "requeued" for line in job.log)
        allowed = job.moves[0].now.max_attempts + requeues
        if row["attempt"] - row["given_back"] > allowed:
            yield f"spent {row['attempt'] - row['given_back']} attempts of {allowed}"


def _cancels(job: History, excuses: Excuses) -> Iterator[str]:
    """What was cancelled stays so, unless somebody queued it again, and does not begin any more."""
    answers = [line for line in job.said if line["event"] == "cancel_answered" and line["answer"]]
    times = [m.at for m in job.moves if m.was and m.now.status == "cancelled" != m.was.status]
    if len(times) < len(answers):
        yield f"{len(answers)} were told that they had cancelled it, and {len(times)} had"
    for at in times:
        again = [m.at for m in job.moves if m.at > at and m.now.status != "cancelled"]
        until = min(again, default=float("inf"))
        for run in job.executions:
            # What had been claimed before may begin until its worker hears of it.
            late = at + 1.5 < run.began < until
            if late and not excuses.for_expiry(run.pid, run.began, run.began):
                yield f"attempt {run.attempt} began {run.began - at:.1f} s after the cancellation"


def _told(job: History, excuses: Excuses) -> Iterator[str]:
    """Receivers hear of each end at most once, and of every one unless who was to tell them died."""
    finals = [m for m in job.moves if m.was and m.now.status in FINAL and m.was.status not in FINAL]
    told = sum(line["event"] == "finished" for line in job.said)
    if told > len(finals):
        yield f"ended {len(finals)} times, and receivers were told {told} times"
    elif not told and len(finals) == 1 and finals[0].now.status == "completed":
        # Of one that was queued again at once there is no end to tell of.
        again = any(line["event"].startswith("requeue") for line in job.said)
        if not again and finals[0].now.pid not in excuses.ended:
            yield "completed, and no receiver was told"
