"""Programs in the style of the documented API run on a real server with only their import changed (client.md §19.12).

Each program is text that begins with `import AMPS`. It runs in a fresh namespace with `uri`, the address of the server,
and `name`, a client name of its own. Its assertions are the test.
"""

from collections.abc import Iterator

import pytest

from amps.testing import AmpsServer

PROGRAMS = {
    "publish and subscribe with a stream": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
stream = client.subscribe("messages")
client.publish("messages", '{ "message" : "Hello, world!" }')
for message in stream:
    assert message.get_data() == '{ "message" : "Hello, world!" }'
    assert message.get_topic() == "messages"
    break
client.close()
""",
    "a handler, a filter, and the end of the subscription": """
import AMPS, threading

received = []
arrived = threading.Event()

def on_message(message):
    received.append(message.get_data())
    arrived.set()

client = AMPS.Client(name)
client.connect(uri)
client.logon()
sub_id = client.subscribe(on_message, "filtered", "/id = 2")
for number in (1, 2, 3):
    client.publish("filtered", '{"id":%d}' % number)
assert arrived.wait(20)
client.unsubscribe(sub_id)
client.publish_flush()
client.close()
assert received == ['{"id":2}']
""",
    "the Command interface, synchronous and asynchronous": """
import AMPS, queue

client = AMPS.Client(name)
client.connect(uri)
client.logon(5000)
received = queue.Queue()
command = AMPS.Command("subscribe").set_topic("commands").set_filter("/n > 0").set_timeout(5000)
sub_id = client.execute_async(command, received.put)
client.execute_async(AMPS.Command("publish").set_topic("commands").set_data('{"n":1}'), lambda m: None)
message = received.get(timeout=20)
assert message.get_sub_id() == sub_id
assert message.get_command() == AMPS.Message.Command.Publish
stream = client.execute(AMPS.Command("subscribe").setTopic("commands").setBookmark(AMPS.Client.Bookmarks.EPOCH))
assert next(stream).getData() == '{"n":1}'
stream.close()
client.close()
""",
    "a replay, and where it got to": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
for number in range(5):
    client.publish("replayed", str(number))
client.publish_flush(10000)
stream = client.bookmark_subscribe("replayed", AMPS.Client.Bookmarks.EPOCH).timeout(20000)
messages = [next(stream) for _ in range(5)]
assert [message.get_data() for message in messages] == ["0", "1", "2", "3", "4"]
stream.close()
later = client.bookmark_subscribe("replayed", messages[2].get_bookmark(), "again", "", "", 5000)
assert [next(later).get_data() for _ in range(2)] == ["3", "4"]
client.close()
""",
    "a replay with completed and its end": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
client.publish("caught-up", "1")
client.publish_flush()
command = AMPS.Command("subscribe").set_topic("caught-up").set_bookmark("0").add_ack_type("completed")
kinds = []
for message in client.execute(command):
    kinds.append((message.get_command(), message.get_ack_type()))
    if message.get_command() == "ack":
        break
assert kinds == [("publish", ""), ("ack", "completed")], kinds
client.close()
""",
    "a queue with explicit acknowledgement": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
for number in range(10):
    client.publish("work", '{"n":%d}' % number)
done = []
for message in client.subscribe("work", "", AMPS.Message.Options.MaxBacklog(3)):
    done.append(message.get_data())
    assert message.get_lease_period()
    message.ack()
    if len(done) == 10:
        break
assert done == ['{"n":%d}' % number for number in range(10)]
client.close()
""",
    "automatic acknowledgement in batches, and a handler that fails once": """
import AMPS, threading

client = AMPS.Client(name)
client.set_auto_ack(True)
client.set_ack_batch_size(4)
client.set_ack_timeout(50)
assert client.get_auto_ack() and client.get_ack_batch_size() == 4 and client.get_ack_timeout() == 50
errors, done, finished = [], [], threading.Event()
client.set_exception_listener(errors.append)

def work(message):
    if message.get_data() == '{"n":3}' and not errors:
        raise ValueError("not this time")
    done.append(message.get_data())
    if len(set(done)) == 8:
        finished.set()

client.connect(uri)
client.logon()
client.subscribe(work, "batched", options="max_backlog=5")
for number in range(8):
    client.publish("batched", '{"n":%d}' % number)
assert finished.wait(20), done
assert sorted(done) == ['{"n":%d}' % number for number in range(8)]
assert [str(error) for error in errors] == ["not this time"]
client.close()
""",
    "the client's ack with a topic and bookmark, and returning a message to the queue": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
client.publish("given-back", "{}")
stream = client.subscribe("given-back").timeout(20000)
message = next(stream)
client.ack(message, AMPS.Message.Options.Cancel)
message = next(stream)
client.ack(message.get_topic(), message.get_bookmark())
client.flush_acks()
stream.close()
stream = client.subscribe("given-back").timeout(300)
assert next(stream) is None
client.close()
""",
    "errors of commands": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
try:
    client.connect(uri)
    assert False
except AMPS.AlreadyConnected:
    pass
try:
    client.subscribe(print, "t", "/a >")
    assert False
except AMPS.BadFilter as error:
    assert isinstance(error, AMPS.CommandException)
try:
    client.sow("not-a-sow-topic")
    assert False
except AMPS.AMPSException:
    pass
client.subscribe(print, "t", "/a > 1")
client.close()
""",
    "errors of connecting": """
import AMPS

for address, error in (
    ("tcp://127.0.0.1:1/amps/json", AMPS.ConnectionRefusedException),
    ("nonsense", AMPS.InvalidUriException),
    ("tcp://h:1/amps/json?x=1", AMPS.InvalidTransportOptionsException),
    ("foo://h:1/amps/json", AMPS.TransportTypeException),
):
    try:
        AMPS.Client(name).connect(address)
        assert False
    except error:
        pass
""",
    "an authenticator and connection states": """
import AMPS

class Token:
    def authenticate(self, username, password):
        assert (username, password) == ("me", "old")
        return "token"
    def retry(self, username, password):
        raise AMPS.AuthenticationException("no")
    def completed(self, username, password, reason):
        self.done = True

states = []
token = Token()
client = AMPS.Client(name)
client.add_connection_state_listener(states.append)
client.connect(uri.replace("tcp://", "tcp://me:old@"))
client.logon(authenticator=token)
assert token.done
client.close()
assert states[:2] == [AMPS.ConnectionStateListener.Connected, AMPS.ConnectionStateListener.LoggedOn], states
""",
    "a publish store": """
import AMPS

client = AMPS.Client(name)
client.set_publish_store(AMPS.MemoryPublishStore(1000))
client.connect(uri)
client.logon()
assert [client.publish("stored", str(number)) for number in range(3)] == [1, 2, 3]
client.publish_flush(10000)
assert client.get_unpersisted_count() == 0
client.close()
""",
    "FIX and NVFIX": """
import AMPS

builder = AMPS.NVFIXBuilder()
builder.append("symbol", "MSFT")
builder.append("px", "12.5")
client = AMPS.Client(name)
client.connect(uri.replace("/json", "/nvfix"))
client.logon()
stream = client.subscribe("quotes", "/symbol = 'MSFT'")
client.publish("quotes", builder.get_string())
assert AMPS.NVFIXShredder().to_map(next(stream)) == {"symbol": "MSFT", "px": "12.5"}
client.close()
fix = AMPS.FIXBuilder(1)
fix.append(35, "D")
assert AMPS.FIXShredder(1).toMap(fix.getString()) == {35: "D"}
""",
    "messages that are built and sent": """
import AMPS

client = AMPS.Client(name)
client.connect(uri)
client.logon()
stream = client.subscribe("built")
message = client.allocate_message()
message.set_command("publish").set_topic("built").set_data("x").set_correlation_id("abc")
client.send(message)
got = next(stream)
assert (got.get_data(), got.get_correlation_id(), got.get_sequence(), got.get_filter()) == ("x", "abc", 0, "")
kept = got.copy()
kept.set_topic("other")
assert (kept.get_topic(), got.get_topic()) == ("other", "built")
client.close()
""",
    "acknowledgements that a command requests, and all of a type": """
import AMPS, queue

all_acks, acks = queue.Queue(), queue.Queue()
client = AMPS.Client(name)
client.set_global_command_type_message_handler("ack", all_acks.put)
client.connect(uri)
client.logon()
assert all_acks.get(timeout=20).get_ack_type() == "processed"
command = AMPS.Command("publish").set_topic("recorded").set_data("1").set_ack_type(AMPS.Message.AckType.Persisted)
client.execute_async(command, acks.put)
message = acks.get(timeout=20)
assert (message.get_command(), message.get_ack_type(), message.get_status()) == ("ack", "persisted", "success")
client.close()
""",
}


@pytest.fixture(scope="module")
def server() -> Iterator[AmpsServer]:
    backlog = {"MaxPerSubscriptionBacklog": 5, "LeasePeriod": "30s"}
    with AmpsServer(queues={"work": backlog, "batched": backlog, "given-back": backlog}) as started:
        yield started


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_documented_program_runs_with_its_import_changed(title: str, server: AmpsServer) -> None:
    program = PROGRAMS[title].replace("import AMPS", "import amps.compat as AMPS", 1)
    if "AMPS, " in program:
        program = program.replace("as AMPS, ", "as AMPS\nimport ", 1)
    exec(compile(program, title, "exec"), {"uri": server.uri(), "name": title.replace(" ", "-").replace(",", "")})
