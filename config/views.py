"""The demo site's page: buttons that enqueue the sample tasks, and what became of the jobs."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from config.tasks import build_report, send_email, take_payment
from jobqueue import enqueue_many
from jobqueue.models import Job, Status, Worker

LATEST = 30  # jobs on the page
WORKER_SEEN = timedelta(minutes=1)  # how long ago a worker may last have been heard of

GLYPHS = {
    Status.SCHEDULED: "◷",
    Status.QUEUED: "○",
    Status.PROCESSING: "▶",
    Status.COMPLETED: "✓",
    Status.FAILED: "✕",
    Status.CANCELLED: "⊘",
}


# --- What can be enqueued


class EmailForm(forms.Form):
    """Who gets the message, and how many."""

    address = forms.EmailField(label="Address", initial="ada@example.com", max_length=200)
    times = forms.IntegerField(min_value=1, max_value=20)


class PaymentForm(forms.Form):
    """What to charge. The page carries the order's number, so sending it twice is one order."""

    amount = forms.DecimalField(
        label="Amount", initial="19.90", min_value=0, max_digits=8, decimal_places=2
    )
    order_id = forms.IntegerField(min_value=1, max_value=2**31, widget=forms.HiddenInput)


class ReportForm(forms.Form):
    """How long the report takes."""

    seconds = forms.FloatField(label="Seconds of work", initial=3, min_value=0.1, max_value=60)


def _new_forms() -> dict[str, forms.Form]:
    order_id = random.randrange(100_000, 1_000_000)
    return {
        "email": EmailForm(prefix="email"),
        "payment": PaymentForm(prefix="payment", initial={"order_id": order_id}),
        "report": ReportForm(prefix="report"),
    }


def _enqueue_email(data: dict[str, Any]) -> str:
    address, times = data["address"], data["times"]
    enqueue_many(
        [send_email.bind(address=address, subject=f"Hello {n}") for n in range(1, times + 1)]
    )
    return f"Queued {'an e-mail' if times == 1 else f'{times} e-mails'} to {address}."


def _enqueue_payment(data: dict[str, Any]) -> str:
    order_id, amount = data["order_id"], data["amount"]
    result = take_payment.using(idempotency_key=f"order-{order_id}").enqueue(
        order_id=order_id, amount=str(amount)
    )
    if not result.created:
        return f"Order {order_id} had been submitted before: it is still one job."
    return f"Queued the payment of {amount} for order {order_id}."


def _enqueue_report(data: dict[str, Any]) -> str:
    seconds = data["seconds"]
    build_report.enqueue(month=timezone.now().strftime("%Y-%m"), seconds=seconds)
    return f"Queued a report of {seconds:g} seconds."


def _accept(
    request: HttpRequest, name: str, form: forms.Form, enqueue: Callable[[dict[str, Any]], str]
) -> HttpResponse:
    """Enqueue what the form asks for, or show what is wrong with it."""
    if form.is_valid():
        try:
            # What a view writes belongs in one transaction: then the jobs exist if, and only if,
            # the rest was saved as well.
            with transaction.atomic():
                said = enqueue(form.cleaned_data)
        except ValueError as error:  # the same order with another amount
            form.add_error(None, str(error))
        else:
            messages.success(request, said)
            return redirect("index")
    return _page(request, _new_forms() | {name: form}, status=422)


@require_POST
def enqueue_email(request: HttpRequest) -> HttpResponse:
    """Send one message or several."""
    return _accept(request, "email", EmailForm(request.POST, prefix="email"), _enqueue_email)


@require_POST
def enqueue_payment(request: HttpRequest) -> HttpResponse:
    """Take a payment, once, however often the form is sent."""
    form = PaymentForm(request.POST, prefix="payment")
    return _accept(request, "payment", form, _enqueue_payment)


@require_POST
def enqueue_report(request: HttpRequest) -> HttpResponse:
    """Build a report."""
    return _accept(request, "report", ReportForm(request.POST, prefix="report"), _enqueue_report)


# --- What became of it


@dataclass(frozen=True, slots=True)
class State:
    """A status as people see it: a shape and a word, never a colour alone."""

    value: str
    label: str
    glyph: str
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    id: str
    task: str
    arguments: str
    state: State
    attempt: int
    max_attempts: int
    when: datetime
    detail: str
    progress: dict[str, Any] | None


def _state(status: Status, jobs: int = 0) -> State:
    # The selector after the glyph asks for its text form: some systems draw ▶ as an emoji.
    return State(status.value, str(status.label), GLYPHS[status] + "\ufe0e", jobs)


def _short(value: object, limit: int = 160) -> str:
    text = str(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _detail(job: Job) -> str:
    """What there is to say about the job, in a line."""
    if job.is_stopping:
        return "cancelled, still stopping"
    if job.status == Status.COMPLETED:
        ran = (job.finished_at - job.attempted_at) if job.finished_at and job.attempted_at else None
        took = f"in {ran.total_seconds():.1f} s" if ran is not None else ""
        value = job.return_value
        gave = (
            ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        return _short(f"{took} · {gave}" if gave else took)
    if job.status == Status.SCHEDULED:
        due = f"starts after {job.run_after:%H:%M:%S}"
        return _short(f"{due} · {job.error}" if job.error else due)
    return _short(job.error)


def _row(job: Job) -> Row:
    arguments = [repr(value) for value in job.args]
    arguments += [f"{name}={value!r}" for name, value in job.kwargs.items()]
    return Row(
        id=str(job.id),
        task=job.task_path.rpartition(".")[2],
        arguments=_short(", ".join(arguments), 120),
        state=_state(Status(job.status)),
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        when=job.enqueued_at,
        detail=_detail(job),
        progress=job.progress if job.status == Status.PROCESSING else None,
    )


def _board() -> dict[str, Any]:
    """What the part of the page that keeps changing shows."""
    counts = dict(Job.objects.order_by().values_list("status").annotate(Count("pk")))
    workers = Worker.objects.exclude(state=Worker.State.GONE).filter(
        heartbeat_at__gt=timezone.now() - WORKER_SEEN
    )
    return {
        "states": [_state(status, counts.get(status.value, 0)) for status in Status],
        "rows": [_row(job) for job in Job.objects.order_by("-id")[:LATEST]],
        "latest": LATEST,
        "workers": workers.count(),
    }


def _page(request: HttpRequest, cards: dict[str, forms.Form], status: int = 200) -> HttpResponse:
    return render(request, "demo/index.html", {"forms": cards, **_board()}, status=status)


@require_safe
@never_cache
def index(request: HttpRequest) -> HttpResponse:
    """The page."""
    return _page(request, _new_forms())


@require_safe
@never_cache
def jobs(request: HttpRequest) -> HttpResponse:
    """The part of the page that keeps changing, for the script that refreshes it."""
    return render(request, "demo/_jobs.html", _board())
