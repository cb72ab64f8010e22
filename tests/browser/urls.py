"""The addresses of the browser tests' site: the admin, and a second admin site that has nothing but the dashboard."""

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from jobqueue.admin import register

ops = admin.AdminSite(name="ops")
register(ops)

urlpatterns = [path("admin/", admin.site.urls), path("x/ops/", ops.urls)]


def own_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """The strictest policy that the admin of Django 5.2 itself keeps to, which knows no nonces."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response["Content-Security-Policy"] = "script-src 'self'; style-src 'self'"
        return response

    return respond


def below_under(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The site as a server mounts it below a path."""
    if environ["PATH_INFO"].startswith("/under/"):
        environ["SCRIPT_NAME"] = "/under"
        environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix("/under")
    return get_wsgi_application()(environ, start_response)
