#!/usr/bin/env python
"""Django's command line for the demo site."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run one management command."""
    if sys.argv[1:2] == ["demo"]:
        # The demo is a way to run this site, so the settings have to know before they are read; the
        # web server and the worker that it starts inherit both variables.
        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
        os.environ.setdefault("JOBQUEUE_DEMO", str(Path(__file__).resolve().parent / ".demo"))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
