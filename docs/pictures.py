"""Makes the pictures of the dashboard anew, from what the demo leaves: `python docs/pictures.py [--folder DIR]`.

It needs the packages of the extra `test` and a Chromium. The three that the README shows go to `docs/images`; with
`--folder` every page is taken, light and dark, wide and narrow, and put there to be looked at.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from tests.environments import chromium_path  # noqa: E402

JOBS = "/admin/jobqueue/job/"
#: Name of a page: its address, and the link on it to follow, if any.
PAGES: dict[str, tuple[str, str]] = {
    "overview": ("/admin/jobqueue/overview/", ""),
    "jobs": (JOBS, ""),
    "failed": (f"{JOBS}?state=failed", ""),
    "job": (f"{JOBS}?state=failed", "#result_list th a, #result_list .field-job a"),
    "running": (f"{JOBS}?state=processing", "#result_list th a, #result_list .field-job a"),
    "requeue": (f"{JOBS}?state=failed", "#result_list th a, #result_list .field-job a"),
    "queues": ("/admin/jobqueue/queue/", ""),
    "workers": ("/admin/jobqueue/worker/", ""),
    "reconcile": ("/admin/jobqueue/sweep/", ""),
    "audit": ("/admin/jobqueue/auditentry/", ""),
}
SHOWN = ("overview", "jobs", "job")


@contextmanager
def demo(jobs: int) -> Iterator[tuple[str, str]]:
    """A demo that keeps serving; its address and the password of its user."""
    ours, theirs = os.openpty()
    with tempfile.TemporaryDirectory(prefix="jobqueue-pictures-") as folder:
        process = subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), "demo", "--jobs", str(jobs)],
            env=os.environ | {"JOBQUEUE_DEMO": folder},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        said = ""
        try:
            while "Ctrl-C ends them" not in said:
                said += os.read(ours, 65_536).decode(errors="replace")
            address = re.search(r"page +(http://127\.0\.0\.1:\d+)/", said)
            password = re.search(r"password (\S+)", said)
            assert address is not None, said
            assert password is not None, said
            yield address[1], password[1]
        finally:
            process.send_signal(signal.SIGINT)
            try:
                while os.read(ours, 65_536):
                    pass
            except OSError:
                pass
            process.wait(30)


def take(page: Page, site: str, name: str, path: Path, *, full: bool) -> None:
    """One page, as it looks when it is there."""
    address, link = PAGES[name]
    page.goto(site + address)
    if link:
        page.locator(link).first.click()
        page.wait_for_load_state()
    if name == "requeue":
        page.locator("a[href*='/act/requeue/']").first.click()
        page.wait_for_load_state()
    page.screenshot(path=path, full_page=full)


def log_in(browser: Browser, site: str, password: str, width: int, scheme: str) -> Page:
    """A window of that width with the demo's user in front of it."""
    page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(f"{site}/admin/login/?next={JOBS}")
    page.fill("#id_username", "demo")
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_url(f"**{JOBS}")
    return page


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="take every page, and put it there")
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    path = chromium_path()
    if path is None:
        parser.error("no Chromium here")
    images = options.folder or PROJECT / "docs" / "images"
    images.mkdir(parents=True, exist_ok=True)
    with demo(options.jobs) as (site, password), sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        if options.folder is None:
            page = log_in(browser, site, password, 1400, "light")
            for name in SHOWN:
                take(page, site, name, images / f"{name}.png", full=False)
        else:
            for width in (1400, 390):
                for scheme in ("light", "dark"):
                    page = log_in(browser, site, password, width, scheme)
                    for name in PAGES:
                        file = images / f"{name}-{width}-{scheme}.png"
                        take(page, site, name, file, full=True)
        browser.close()
    print(f"Written to {images}.")


if __name__ == "__main__":
    main()
