"""The tests' site with a second admin site under a prefix."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from jobqueue.admin import register

site = admin.AdminSite(name="ops")
register(site)

urlpatterns = [path("admin/", admin.site.urls), path("x/ops/", site.urls)]
