"""The driver of a fault run: `python -m tests.chaos [--seconds S] [--seed N] [--focus NAME] [--no-redis]`."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tests.chaos.plan import FOCUSES, draw
from tests.servers import PrivatePostgres, PrivateRedis, ServerError, room


def main() -> int:
    """One run; its last line says how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long faults happen (180)")
    parser.add_argument("--seed", type=int, help="replay the faults of another run")
    parser.add_argument("--focus", choices=sorted(FOCUSES), default="", help="a narrow run")
    parser.add_argument("--no-redis", action="store_true", help="without Redis")
    parser.add_argument(
        "--keep", metavar="DIR", help="copy the record and the logs of the run there"
    )
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    narrow = FOCUSES.get(options.focus)
    seconds = options.seconds or (narrow.seconds if narrow else 180.0)
    signal.signal(signal.SIGTERM, _interrupt)
    redis: PrivateRedis | None = None
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=room()))
    with PrivatePostgres() as postgres:
        if not options.no_redis:
            try:
                redis = PrivateRedis().start()
            except ServerError as error:
                print(f"without Redis: {error}", flush=True)
        try:
            plan = draw(seed, seconds, options.focus, redis=redis is not None)
            (folder / "armed").mkdir()
            variables = {
                "DJANGO_SETTINGS_MODULE": "tests.settings",
                "DATABASE_URL": postgres.url,
                "JOBQUEUE_CHAOS_ROOM": str(folder),
                "JOBQUEUE_TEST_CONN_MAX_AGE": "30",
                "JOBQUEUE_TEST_OPTIONS": json.dumps(plan.options),
            }
            if redis is not None:
                variables["JOBQUEUE_TEST_REDIS"] = redis.url
                variables["JOBQUEUE_TEST_REDIS_PREFIX"] = "chaos"
            os.environ.update(variables)
            import django

            django.setup()
            from tests.chaos.run import Run  # reads the models

            return Run(plan, folder, postgres, redis, variables).whole()
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
            if redis is not None:
                redis.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
    sys.exit(main())
