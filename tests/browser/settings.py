"""The tests' site as a browser meets it: with static files, CSRF, and whatever variant the environment asks for.

`JOBQUEUE_BROWSER` names variants, separated by commas: `csp` (a strict policy), `unfold` (that theme), `berlin`
(times there), `arabic` (right to left), `prefix` (all of it below /under).
"""

import os

import django

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS, MIDDLEWARE, TEMPLATES

VARIANTS = frozenset(filter(None, os.environ.get("JOBQUEUE_BROWSER", "").split(",")))

ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = [
    *(["unfold"] if "unfold" in VARIANTS else []),
    *INSTALLED_APPS,
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    *(["django.middleware.locale.LocaleMiddleware"] if "arabic" in VARIANTS else []),
    *MIDDLEWARE,
    "django.middleware.csrf.CsrfViewMiddleware",
]
ROOT_URLCONF = "tests.browser.urls"
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

if "berlin" in VARIANTS:
    TIME_ZONE = "Europe/Berlin"
if "arabic" in VARIANTS:
    LANGUAGE_CODE = "ar"
if "prefix" in VARIANTS:
    WSGI_APPLICATION = "tests.browser.urls.below_under"
    STATIC_URL = "/under/static/"
if "csp" in VARIANTS:
    if django.VERSION >= (6, 1):
        MIDDLEWARE.append("django.middleware.csp.ContentSecurityPolicyMiddleware")
        TEMPLATES[0]["OPTIONS"]["context_processors"].append(
            "django.template.context_processors.csp"
        )
        from django.utils.csp import CSP

        SECURE_CSP = {
            "default-src": [CSP.NONE],
            "script-src": [CSP.NONCE],
            "style-src": [CSP.NONCE],
            "img-src": [CSP.SELF, "data:"],
            "connect-src": [CSP.SELF],
            "form-action": [CSP.SELF],
        }
    else:
        MIDDLEWARE.append("tests.browser.urls.own_policy")
