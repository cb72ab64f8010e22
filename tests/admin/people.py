"""People with rights, and how they confirm."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlparse

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory
from django.urls import reverse

from jobqueue.admin import confirming

JOBS = "admin:jobqueue_job_changelist"
VIEW = ("view_job", "view_queue", "view_worker", "view_sweep", "view_auditentry")


def staff(*rights: str, name: str = "ann", view: bool = True) -> Client:
    """A browser of somebody who may see everything and has these rights beside."""
    user, _ = User.objects.get_or_create(username=name, is_staff=True)
    names = {*rights, *(VIEW if view else ())}
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="jobqueue", codename__in=names)
    )
    client = Client()
    client.force_login(user)
    return client


def tick(client: Client, verb: str, *jobs: Any, query: str = "", across: bool = False) -> str:
    """Choose jobs of the list and an action: the address of the confirmation."""
    url = reverse(JOBS) + (f"?{query}" if query else "")
    data = {
        "action": f"{verb}_jobs",
        "_selected_action": [str(job.pk) for job in jobs],
        "select_across": int(across),
    }
    response = client.post(url, data)
    assert response.status_code == 302, response
    return str(response["Location"])


def address(client: Client, model: str, verb: str, *rows: Any, query: str | None = None) -> str:
    """The address that a page of this model gives this person for a verb."""
    page: Any = admin.site.get_model_admin(apps.get_model("jobqueue", model))
    request = RequestFactory().get("/")
    request.user = User.objects.get(pk=client.session["_auth_user_id"])
    return confirming.address(page, request, verb, ids=[row.pk for row in rows], query=query)


def token_of(url: str) -> str:
    """The token in the address of a confirmation."""
    return parse_qs(urlparse(url).query)["t"][0]


def form(body: str) -> dict[str, str]:
    """What the form of a confirmation sends if nothing is filled in."""
    found = re.search(r"<form[^>]*data-jq=\"confirm-form\".*?</form>", body, re.DOTALL)
    assert found, body
    sent = {}
    for tag in re.findall(r"<input[^>]*>", found[0]):
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
        if attributes["type"] != "radio" or " checked" in tag:
            sent[attributes["name"]] = unescape(attributes.get("value", ""))
    return sent


def confirm(client: Client, url: str, reason: str = "because", **more: str) -> list[str]:
    """Open the confirmation, fill it in and send it: the messages of the page that follows."""
    return send(client, url, form(client.get(url).content.decode()) | {"reason": reason} | more)


def send(client: Client, url: str, data: dict[str, str]) -> list[str]:
    """Send the form of a confirmation: the messages of the page that follows."""
    response = client.post(url.partition("?")[0], data, follow=True)
    assert response.status_code == 200
    assert response.redirect_chain, response.content.decode()
    return [str(message) for message in response.context["messages"]]
