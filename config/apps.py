"""The demo site as a Django app: it brings the command `demo` and the page's static files."""

from django.apps import AppConfig


class DemoSiteConfig(AppConfig):
    """No models; the jobs are jobqueue's."""

    name = "config"
    verbose_name = "Demo site"
