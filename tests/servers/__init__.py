"""Private servers: a PostgreSQL and a Redis of the tests' own, which a test may stop, cut or kill.

They are started straight from the binaries that two pip packages carry; a PgBouncer between is the
system's. A test takes them from the fixtures `private_postgres` and `private_redis`, or makes one itself:

    with PrivatePostgres() as server:
        psycopg.connect(server.url)
        server.restart("immediate", down_for=2)
"""

from .base import PrivateServer, ServerError, ServerUnavailable
from .pgbouncer import PrivatePgBouncer
from .postgres import PrivatePostgres
from .redis import PrivateRedis
from .room import room

__all__ = [
    "PrivatePgBouncer",
    "PrivatePostgres",
    "PrivateRedis",
    "PrivateServer",
    "ServerError",
    "ServerUnavailable",
    "room",
]
