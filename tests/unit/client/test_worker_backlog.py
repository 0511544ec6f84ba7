"""The messages that a worker holds, over several connections and leases."""

from amps.client import Message
from amps.client.workers import backlog as module
from amps.client.workers.backlog import Backlog, Held


def arriving(number: int) -> Message:
    header = b'{"c":"p","t":"Q","bm":"1|%d|","lp":"0"}' % number
    return Message.parsed(header, {"c": "p", "cmd": "p", "topic": "Q", "bookmark": f"1|{number}|"}, len(header))


def taken(backlog: Backlog) -> Held:
    held = backlog.take()
    assert held is not None
    return held


def test_a_message_is_not_leased_after_its_connection() -> None:
    backlog = Backlog()
    assert backlog.put(arriving(1))
    assert backlog.put(arriving(2))
    running = taken(backlog)
    backlog.drop_waiting()
    assert backlog.waiting == 0
    assert not backlog.release(running, settled=False)


def test_a_message_that_arrives_again_is_leased_again() -> None:
    backlog = Backlog()
    backlog.put(arriving(1))
    running = taken(backlog)
    backlog.drop_waiting()
    again = arriving(1)
    assert backlog.put(again)
    assert backlog.waiting == 0
    assert running.message is again
    assert backlog.release(running, settled=False)
    assert backlog.put(arriving(1))
    assert backlog.waiting == 1


def test_settled_messages_are_remembered_up_to_a_bound() -> None:
    backlog = Backlog()
    for number in range(module.MAX_SETTLED + 1):
        backlog.put(arriving(number))
        backlog.release(taken(backlog), settled=True)
    assert not backlog.put(arriving(1))
    assert backlog.put(arriving(0))


def test_no_handler_begins_after_a_stop() -> None:
    backlog = Backlog()
    backlog.put(arriving(1))
    backlog.stop()
    assert backlog.take() is None
    assert (backlog.running, backlog.waiting) == (0, 1)
