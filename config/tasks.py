"""Three sample tasks: one that rarely fails, one that often does, one that takes its time.

They fail by chance. Set `JOBQUEUE_DEMO_SEED` to any text in the worker's environment, and the same
call fails on the same attempts every time.
"""

import hashlib
import os
import random
import time
from typing import Any

from django.utils import timezone

from jobqueue import JobContext, PermanentError, Retry, task

EMAIL_FAILS = 0.1
PAYMENT_FAILS = 0.3


class MailServerBusy(Exception):
    """The mail server would not take the message now."""


class GatewayTimeout(Exception):
    """The payment gateway did not answer. Whether it charged the card is not known."""


def unlucky(share: float, *circumstances: object) -> bool:
    """Whether this attempt is one of the `share` (0 to 1) that fail.

    By chance; with a seed in the environment, decided by the seed and the circumstances alone.
    """
    seed = os.environ.get("JOBQUEUE_DEMO_SEED", "")
    # Text as a seed gives the same numbers in every process, unlike hash().
    source = random.Random(repr((seed, circumstances))) if seed else random
    return source.random() < share


@task(max_attempts=8, timeout=30, takes_context=True)
def send_email(context: JobContext, address: str, subject: str) -> dict[str, Any]:
    """Send a message; 1 attempt in 10 finds the server busy and is made again later."""
    time.sleep(0.1)  # the mail server's share
    if address.endswith(".invalid"):
        # No later attempt will do better, so none is made.
        raise PermanentError(f"no mail server takes {address}")
    if unlucky(EMAIL_FAILS, "send_email", address, subject, context.attempt):
        raise MailServerBusy("451 try again later")
    return {"delivered_to": address}


@task(queue_name="billing", priority=10, max_attempts=12, timeout=30, takes_context=True)
def take_payment(context: JobContext, order_id: int, amount: str) -> dict[str, Any]:
    """Charge a card; 3 attempts in 10 get no answer, and are safe to make again.

    The gateway gets the same key with every attempt, so it charges once, whichever of the attempts
    it was that it heard.
    """
    time.sleep(0.15)  # the gateway's share
    charge = "ch_" + hashlib.sha256(context.idempotency_key.encode()).hexdigest()[:12]
    if unlucky(PAYMENT_FAILS, "take_payment", order_id, amount, context.attempt):
        raise GatewayTimeout(f"no answer for order {order_id}")
    return {"charge": charge, "amount": amount}


@task(queue_name="reports", max_attempts=3, timeout=120, takes_context=True)
def build_report(context: JobContext, month: str, seconds: float = 3.0) -> dict[str, Any]:
    """Work for some seconds on a thread, say how far it is, and stop when told to.

    A month that is not over has no figures yet: the report is tried again an hour later.
    """
    if month > f"{timezone.localdate():%Y-%m}":
        raise Retry(f"the figures of {month} are not in yet", after=3600)
    pages = 20
    for page in range(pages):
        context.check()
        context.progress(page, pages, f"page {page + 1} of {pages}")
        time.sleep(seconds / pages)
    return {"month": month, "pages": pages}
