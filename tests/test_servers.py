"""The private servers: they start, answer, restart on the same port, and leave nothing behind."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.app.models import Effect
from tests.servers import PrivatePostgres, PrivateRedis, ServerError
from tests.servers.guard import command_of


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def count(server: PrivatePostgres) -> int:
    return server.execute("SELECT count(*) FROM kept")[0][0]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_postgres_keeps_what_was_committed_over_a_restart(private_postgres, mode):
    private_postgres.execute("CREATE TABLE kept (id int)")
    private_postgres.execute("INSERT INTO kept VALUES (%s), (%s)", 1, 2)
    url, pid = private_postgres.url, private_postgres.process.pid

    private_postgres.restart(mode)

    assert private_postgres.url == url
    assert private_postgres.process.pid != pid
    assert count(private_postgres) == 2


def test_postgres_comes_back_after_sigkill_with_a_client_at_work(private_postgres):
    private_postgres.execute("CREATE TABLE kept (id int)")
    with psycopg.connect(private_postgres.url) as client:
        client.execute("SELECT 1")
        private_postgres.kill()
        assert refused(private_postgres.port)
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    private_postgres.start()
    assert count(private_postgres) == 0


def test_postgres_asks_for_its_password(private_postgres):
    wrong = private_postgres.url.replace(private_postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_cutting_connections_reaches_every_client(private_postgres):
    with psycopg.connect(private_postgres.url) as client:
        client.execute("SELECT 1")
        assert private_postgres.cut_connections() == 1
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")


def test_postgres_takes_settings_and_reports_wrong_ones():
    with PrivatePostgres(max_connections=7) as server:
        assert server.execute("SHOW max_connections") == [("7",)]
        assert server.execute("SHOW fsync") == [("off",)]
    server = PrivatePostgres(max_connections="'many'")
    try:
        with pytest.raises(ServerError, match="max_connections"):
            server.start()
    finally:
        server.close()


def test_two_servers_share_nothing(private_postgres):
    with PrivatePostgres() as second:
        assert second.port != private_postgres.port
        second.execute("CREATE TABLE kept (id int)")
        with pytest.raises(psycopg.errors.UndefinedTable):
            count(private_postgres)


@pytest.mark.parametrize("end", [PrivatePostgres.stop, PrivatePostgres.kill])
def test_a_closed_postgres_leaves_nothing(end):
    with PrivatePostgres() as server:
        pid, port, directory = server.process.pid, server.port, server.directory
        end(server)
        assert refused(port)  # later it may be another server's
    assert str(directory) not in command_of(pid)
    assert not directory.exists()


def test_redis_answers_and_forgets_at_a_restart(private_redis):
    port = private_redis.port
    assert ask(private_redis, "SET a 1") == "+OK"
    assert ask(private_redis, "GET a") == "$1"
    private_redis.restart()
    assert private_redis.port == port
    assert ask(private_redis, "GET a") == "$-1"


def test_a_closed_redis_leaves_nothing(private_redis):
    with PrivateRedis(maxmemory="2mb") as server:
        pid, directory = server.process.pid, server.directory
        server.kill()
    assert str(directory) not in command_of(pid)
    assert not directory.exists()
    assert ask(private_redis, "PING") == "+PONG"


def ask(server: PrivateRedis, command: str) -> str:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(f"AUTH {server.password}\r\n{command}\r\n".encode())
        with connection.makefile() as answers:
            assert answers.readline() == "+OK\n"
            return answers.readline().strip()


OPENS_SERVERS = """
import sys
from tests.servers import PrivatePostgres, PrivateRedis, room
servers = [PrivatePostgres().start(), PrivateRedis().start()]
print(room(), *(server.process.pid for server in servers), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGINT])
def test_a_test_run_that_ends_takes_its_servers_with_it(private_redis, number):
    """Also one that is killed: its guard sees it go."""
    environment = {k: v for k, v in os.environ.items() if k != "JOBQUEUE_TEST_DIR"}
    run = subprocess.Popen(
        [sys.executable, "-c", OPENS_SERVERS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,  # held by the guard as well: it reads to its end when all have gone
        text=True,
        env=environment,
    )
    room, *pids = run.stdout.readline().split()
    assert [room in command_of(int(pid)) for pid in pids] == [True, True]
    if number:
        run.send_signal(number)
    run.communicate(timeout=30)
    assert not Path(room).exists()
    assert [room in command_of(int(pid)) for pid in pids] == [False, False]


def test_the_room_is_closed_to_others():
    with PrivatePostgres() as server:
        assert server.data.stat().st_mode & 0o077 == 0
        assert (server.directory.stat().st_mode & 0o077) == 0


COUNTS_EFFECTS = """
import django
django.setup()
from tests.app.models import Effect
print(Effect.objects.count())
"""


def effects_seen_by_a_process(environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", COUNTS_EFFECTS]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return int(answer.stdout)


@pytest.mark.django_db(transaction=True)
def test_a_process_of_a_test_sees_the_rows_of_the_test(child_environment):
    Effect.objects.create(key="a")
    assert effects_seen_by_a_process(child_environment()) == 1


@pytest.mark.postgres
def test_a_private_postgres_can_be_the_default_database(on_private_postgres, child_environment):
    Effect.objects.create(key="a")
    on_private_postgres.restart()
    connection.close()
    assert Effect.objects.count() == 1
    assert on_private_postgres.execute("SELECT key FROM tests_app_effect") == [("a",)]
    assert effects_seen_by_a_process(child_environment()) == 1
