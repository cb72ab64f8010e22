"""New code on the tables of the version before: nothing is lost, and every side says what to do."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from jobqueue.models import Job, Status
from tests.processes import tasks

pytestmark = [pytest.mark.processes, pytest.mark.postgres, pytest.mark.timeout(120)]

PAGES = ("overview", "job", "queue", "worker", "sweep", "auditentry")


def test_upgraded_and_not_migrated(private_site):
    """Jobs are accepted, workers refuse to start, the admin names the command; then it is given, and all goes on."""
    site = private_site
    call_command("migrate", "jobqueue", "0001", verbosity=0, interactive=False)
    accepted = [tasks.quick.enqueue(number) for number in range(3)]
    assert Job.objects.filter(status=Status.QUEUED).count() == 3

    worker = site.start()
    assert worker.wait() == 1
    assert "manage.py migrate" in worker.log
    assert "Traceback" not in worker.log
    assert len(worker.log.splitlines()) < 10, worker.log

    staff = get_user_model().objects.create_superuser("staff", password="x")
    client = Client()
    client.force_login(staff)
    said = {}
    for page in PAGES:
        answer = client.get(reverse(f"admin:jobqueue_{page}_changelist"))
        assert answer.status_code == 200, page
        said[page] = "manage.py migrate" in answer.content.decode()
    # What stands in tables that are there already may be shown.
    assert [said["overview"], said["auditentry"]] == [True, True], said
    one = reverse("admin:jobqueue_job_change", args=[accepted[0].id])
    changing = f"{reverse('admin:jobqueue_job_act', args=['cancel'])}?t=none"
    for address in (one, changing, reverse("admin:jobqueue_job_newer")):
        assert client.get(address).status_code < 500, address

    call_command("migrate", verbosity=0, interactive=False)
    site.start_ready()
    for job in accepted:
        assert site.wait_status(job.id, Status.COMPLETED).attempt == 1
