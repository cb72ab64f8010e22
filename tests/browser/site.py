"""The site of the browser tests as a process, and a person in front of it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends import signed_cookies
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from tests.conftest import PROJECT, database_url

#: Seconds in which the site has to answer.
PATIENCE = 30.0


@contextmanager
def running(log: Path, *variants: str) -> Iterator[str]:
    """The site on the test's database; its address, without a slash at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.browser.settings",
        "DATABASE_URL": database_url(),
        "JOBQUEUE_BROWSER": ",".join(variants),
        "PYTHONPATH": str(PROJECT),
    }
    command = [sys.executable, "-m", "django", "runserver", "--noreload", "--insecure"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"127.0.0.1:{port}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            if "prefix" in variants:
                address += "/under"
            _await_answer(address, process, log)
            yield address
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()  # or its connections would keep the database
                process.wait()


def _await_answer(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{address}/static/jobqueue/jobqueue.css", timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the site does not answer: {log.read_text(errors='replace')[-3000:]}")


class Person:
    """Somebody at the browser. Every complaint of the browser is collected, and fails the test."""

    def __init__(self, browser: Browser, address: str, user: User | None, **context: Any) -> None:
        self.address = address
        self.user = user
        self.complaints: list[str] = []
        context.setdefault("viewport", {"width": 1400, "height": 1000})
        self.context: BrowserContext = browser.new_context(**context)
        self.context.set_default_timeout(10_000)
        if user is not None:
            self._log_in(user)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("request", self._on_request)
        self.page.on("dialog", self._on_dialog)

    def _log_in(self, user: User) -> None:
        session = signed_cookies.SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        name, value = settings.SESSION_COOKIE_NAME, session.session_key
        self.context.add_cookies([{"name": name, "value": value, "url": self.address}])

    def _on_console(self, message: ConsoleMessage) -> None:
        if "/favicon.ico" in message.location["url"]:
            return  # which the browser looks for by itself, once
        self.complaints.append(f"{message.type}: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.complaints.append(f"request to {request.url}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def go(self, path: str) -> Page:
        """Open a page of the site; it must be there."""
        response = self.page.goto(self.address + path)
        assert response is not None
        assert response.status == 200, f"{path}: {response.status}"
        return self.page

    def close(self) -> None:
        """End, and say what the browser complained of."""
        self.context.close()
        assert not self.complaints, self.complaints
