"""`python -m tests.processes.calling N`: a process that enqueues N jobs of some kinds and prints their ids."""

from __future__ import annotations

import json
import sys

import django

if __name__ == "__main__":
    django.setup()
    from django.db import transaction

    from tests.processes import tasks

    ids = []
    for number in range(int(sys.argv[1]) // 4):
        ids.append(tasks.quick.enqueue(number).id)
        with transaction.atomic():
            ids.append(tasks.quick.enqueue(number).id)
        ids.append(tasks.quick.using(priority=number % 10).enqueue(number).id)
        ids.append(tasks.writing.enqueue().id)
    sys.stdout.write(json.dumps(ids))
