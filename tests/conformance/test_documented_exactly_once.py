"""The guide to exactly once: its programs are killed again and again, and the database is right."""

import random
import sqlite3
from pathlib import Path

from amps.client import Client, MemoryPublishStore
from tests.support.documents import GUIDE_TO_EXACTLY_ONCE, blocks
from tests.support.programs import programs
from tests.support.queues import queue_xml
from tests.support.server import StartServer, wait_until

WAIT_S = 60.0


def query(path: Path, statement: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path, timeout=30)
    try:
        return database.execute(statement).fetchall()
    finally:
        database.close()


def test_balances_are_right_after_deaths_of_consumer_and_server(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §21 46; transaction_log.md §7: each payment has its effect once."""
    server = start_server(log_topics=("^payments$",))
    uri = f"tcp://127.0.0.1:{server.port()}/amps/json"
    payments = [(f"account-{number % 3}", number) for number in range(1, 601)]
    with programs(GUIDE_TO_EXACTLY_ONCE, tmp_path, server.port()) as guide:
        with Client("payer", uri, publish_store=MemoryPublishStore()) as client:
            for at, (account, amount) in enumerate(payments):
                client.publish("payments", {"account": account, "amount": amount})
                if at == 200:
                    client.publish_flush()
                    consumer = guide.start("HAClient")
                    consumer.until("at ")
                    consumer.kill()
            client.publish_flush()
        consumer = guide.start("HAClient")
        consumer.until("at ")
        server.kill_all()
        server.start()
        with Client("payer-2", uri, publish_store=MemoryPublishStore()) as client:
            client.publish("payments", {"account": "last", "amount": 7})
            client.publish_flush()
        database = tmp_path / "balances.db"
        wait_until(
            lambda: bool(query(database, "SELECT * FROM balances WHERE account = 'last'")),
            WAIT_S,
            lambda: consumer.output,
        )
        expected = {f"account-{rest}": sum(n for _, n in payments if n % 3 == rest) for rest in range(3)}
        assert dict(query(database, "SELECT * FROM balances")) == {**expected, "last": 7}  # type: ignore[arg-type]
        # A second process that began at the same place is stopped by the database, not by the server's names.
        guide.replaced['"balances",'] = '"balances-2",'
        second = guide.start("HAClient")
        wait_until(lambda: bool(server.log.search("balances-2")), WAIT_S, server.excerpt)
        with Client("payer-3", uri) as client:
            client.publish("payments", {"account": "last", "amount": 1})
            client.flush()
        wait_until(
            lambda: None not in (consumer.process.poll(), second.process.poll())
            or "has taken over" in consumer.output + second.output,
            WAIT_S,
            lambda: consumer.output + second.output,
        )
        assert dict(query(database, "SELECT * FROM balances"))["last"] == 8  # type: ignore[arg-type]


def test_a_place_that_the_log_does_not_have_is_an_error(start_server: StartServer, tmp_path: Path) -> None:
    """transaction_log.md §7.2: instead of a gap."""
    server = start_server(log_topics=("^payments$",))
    with programs(GUIDE_TO_EXACTLY_ONCE, tmp_path, server.port()) as guide:
        guide.replaced["'0')"] = "'1|1|')"
        consumer = guide.start("HAClient")
        consumer.until("InvalidBookmarkException")
        assert consumer.process.wait(WAIT_S) == 1


def test_orders_of_a_queue_are_shipped_once(start_server: StartServer, tmp_path: Path) -> None:
    """queues.md §8: workers are killed between commit and acknowledgement, and anywhere else."""
    queue = queue_xml("work", "orders", LeasePeriod="30s")
    server = start_server(log_topics=("^orders$",), instance_xml=f"<SOW>{queue}</SOW>")
    chance = random.Random(1)
    with programs(GUIDE_TO_EXACTLY_ONCE, tmp_path, server.port()) as guide:
        with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
            for number in range(40):
                client.publish("orders", {"id": number})
            client.flush()
            # This worker dies after its first commit, before the acknowledgement.
            guide.replaced["handle)"] = 'lambda message: (handle(message), __import__("os")._exit(9)))'
            assert guide.start("shipments").process.wait(WAIT_S) == 9
            del guide.replaced["handle)"]
            assert len(query(tmp_path / "shipments.db", "SELECT * FROM shipments")) == 1
            assert client.sow_count("work") == 40
            for _ in range(2):
                worker = guide.start("shipments")
                worker.until_lines(chance.randint(1, 10), "shipped:")
                worker.kill()
            worker = guide.start("shipments")
            database = tmp_path / "shipments.db"
            wait_until(lambda: len(query(database, "SELECT * FROM shipments")) >= 40, WAIT_S, lambda: worker.output)
            worker.end()
            assert client.sow_count("work") == 0
        shipped = sorted(row[0] for row in query(tmp_path / "shipments.db", "SELECT order_id FROM shipments"))  # type: ignore[type-var]
        assert shipped == list(range(40))


def test_rows_of_an_outbox_are_published_once(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §8.1: sent again after a death before the rows are deleted, the server knows them."""
    server = start_server(log_topics=("^payments$",))
    path = tmp_path / "outbox.db"
    with programs(GUIDE_TO_EXACTLY_ONCE, tmp_path, server.port()) as guide:
        assert guide.run("outbox") == "published: 0\n"

        def insert(*bodies: str) -> None:
            database = sqlite3.connect(path)
            with database:
                database.executemany("INSERT INTO outbox (body) VALUES (?)", [(body,) for body in bodies])
            database.close()

        insert('{"n":1}', '{"n":2}')
        guide.replaced["DELETE FROM outbox WHERE"] = "DELETE FROM nothing WHERE"
        failed = guide.start("outbox")
        assert failed.process.wait(WAIT_S) == 1
        assert len(query(path, "SELECT * FROM outbox")) == 2
        del guide.replaced["DELETE FROM outbox WHERE"]
        insert('{"n":3}')
        assert guide.run("outbox") == "published: 3\n"
        assert query(path, "SELECT * FROM outbox") == []
        insert('{"n":4}')
        assert guide.run("outbox") == "published: 1\n"
        # A refused row is kept.
        insert('{"n":5}')
        guide.replaced['"payments", data'] = '"/AMPS/refused", data'
        refused = guide.start("outbox")
        assert refused.process.wait(WAIT_S) == 1
        assert "the server refused (5," in refused.output
        assert len(query(path, "SELECT * FROM outbox")) == 1
    with Client(uri=f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        assert [message.json()["n"] for message in client.bookmark_subscribe("payments", "0", top_n=4)] == [1, 2, 3, 4]


def test_every_program_of_the_guide_is_run() -> None:
    assert len(blocks(GUIDE_TO_EXACTLY_ONCE)) == 3
