"""Private servers: a PostgreSQL and a Redis of the tests' own, which a test may stop, cut or kill.

They are started straight from the binaries that two pip packages carry. A test takes them from the
fixtures `private_postgres` and `private_redis`, or makes one itself:

    with PrivatePostgres() as server:
        psycopg.connect(server.url)
        server.restart("immediate", down_for=2)
"""

from .base import PrivateServer, ServerError, ServerUnavailable
from .postgres import PrivatePostgres
from .redis import PrivateRedis
from .room import room

__all__ = [
    "PrivatePostgres",
    "PrivateRedis",
    "PrivateServer",
    "ServerError",
    "ServerUnavailable",
    "room",
]
