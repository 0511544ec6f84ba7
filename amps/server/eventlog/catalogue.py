"""Every message the server can log: id → level and text.

An id is `CC-NNNN`, category and number. The documented ids keep their meaning; the others are of this project. Keep
the table sorted by id. A text never contains the name of a level, so that searching a log for `warning` or
`error` finds records of that level only.

A text is a template: `{name}` stands for a value given to `EventLog.log`, and a part in `[[ ]]` is left out
unless all values inside it are given and not empty. A call gives values only, never a text of its own, except for
`{text}`: so the texts here are those in the log.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

LEVELS = ("developer", "trace", "stats", "info", "warning", "error", "critical", "emergency")
LEVEL_NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(LEVELS)} | {"debug": 3}
NOTHING = len(LEVELS)
"""A minimum level above every level: nothing is logged."""


class Entry(NamedTuple):
    """One message: its level and the template of its text."""

    level: str
    template: str


CATALOGUE: Mapping[str, Entry] = {
    "00-0000": Entry("trace", "{text}"),
    "00-0001": Entry("info", "{text}"),
    "00-0002": Entry("info", "{text}"),
    "00-0004": Entry("info", "configuration, part {part} of {parts}:\n{data}"),
    "00-0005": Entry("warning", "configuration: {text}"),
    "00-0006": Entry("info", "configuration: {text}"),
    "00-0007": Entry(
        "warning",
        "Topic '{topic}' has regular expression characters which could cause unintentional misrouting of "
        "messages.",
    ),
    "00-0009": Entry("critical", "the start failed: {reason}"),
    "00-0015": Entry("info", "AMPS initialization completed ({seconds} seconds)."),
    "00-0030": Entry("info", "host: {text}"),
    "00-0032": Entry("info", "limits: {text}"),
    "00-0033": Entry("info", "configuration read from {path}."),
    "00-0054": Entry("info", "process {pid}, user {user}, working directory {directory}."),
    "01-0001": Entry("info", "process[{process}] started, pid {pid}."),
    "01-0002": Entry(
        "error", "process[{process}] with pid {pid} ended unexpectedly ({status}); starting it again."
    ),
    "01-0003": Entry("critical", "process[{process}] keeps ending ({status}); giving up."),
    "01-0004": Entry("critical", "the core ended unexpectedly ({status}); starting the instance again."),
    "01-0005": Entry("error", "unexpected failure in {place}: {data}"),
    "01-0006": Entry("critical", "the instance cannot continue and ends: {reason}"),
    "01-0007": Entry(
        "critical",
        "the instance accepts no clients until its storage can be used again: {reason}; trying again in {seconds} s.",
    ),
    "01-0008": Entry(
        "warning", "the storage can be used again; the instance accepts clients after {seconds} s."
    ),
    "01-0009": Entry(
        "critical",
        "process[{process}] keeps ending ({status}); it is started again in {seconds} seconds; messages are processed "
        "without it meanwhile.",
    ),
    "01-0010": Entry(
        "info",
        "process[{process}] with pid {pid} ended on purpose ({status}), because the log has begun a new epoch; "
        "starting it again.",
    ),
    "01-0022": Entry("critical", "the server may not be running correctly, minidump written to {path}"),
    "01-0031": Entry("warning", "{count} log records were lost while the log process was not reading."),
    "01-0032": Entry("warning", "the log target {target} cannot be written: {reason}."),
    "01-0033": Entry(
        "warning", "the log target {target} can be written again; {count} records are missing in it."
    ),
    "02-0001": Entry("warning", "client[{client}] sent a message that cannot be understood: {reason}."),
    "02-0025": Entry(
        "warning",
        "client[{client}] with user id: {user} logged on with a name in use; the older one is disconnected.",
    ),
    "02-0026": Entry(
        "warning", "client[{client}] with user id: {user} was refused: another user's client has that name."
    ),
    "02-0027": Entry(
        "warning",
        "client name {client} was taken over again, {count} more times in {seconds} seconds, the last time by "
        "user id: {user}: clients with one name end each other's connections. Give each client a name of its own.",
    ),
    "02-0030": Entry("error", "client[{client}] command {command} failed: {reason}."),
    "07-0001": Entry("info", "client[{connection}] connected to Transport[{transport}] from {address}."),
    "07-0013": Entry("info", "client[{client}] disconnected.[[ Reason: {reason}.]]"),
    "07-0042": Entry("error", "client[{client}] is unresponsive, disconnected by the heartbeat manager."),
    "07-0047": Entry("info", "Transport[{transport}] being disabled."),
    "07-0048": Entry("info", "Transport[{transport}] being enabled."),
    "08-0001": Entry("error", "client[{client}] topic '{topic}' is no valid regular expression: {reason}."),
    "11-0001": Entry("info", "Transport[{transport}] listening on {address}."),
    "11-0002": Entry("warning", "Transport[{transport}] refused a connection from {address}: {reason}."),
    "11-0004": Entry("error", "Transport[{transport}] cannot accept connections for now: {reason}."),
    "12-0001": Entry("trace", "client[{client}] publish command received: {data}"),
    "12-0002": Entry("trace", "client[{client}] subscribe command received: {data}"),
    "12-0003": Entry("trace", "client[{client}] unsubscribe command received: {data}"),
    "12-0004": Entry("trace", "client[{client}] flush command received: {data}"),
    "12-0005": Entry("trace", "client[{client}] heartbeat command received: {data}"),
    "12-0009": Entry("trace", "client[{client}] {command} command received: {data}"),
    "12-0010": Entry("trace", "client[{client}] logon command received: {data}"),
    "12-1002": Entry("trace", "client[{client}] replication ack received: publish ack [txid={txid}]"),
    "14-0001": Entry(
        "info", "client[{client}] subscription {sub_id} to '{topic}' entered.[[ Options: {options}.]]"
    ),
    "14-0002": Entry("info", "client[{client}] subscription {sub_id} to '{topic}' removed."),
    "14-0003": Entry(
        "error",
        "{count} messages of type {message_type} could not be parsed, and match no filter of a subscription or a queue "
        "that needs a missing field; the last one: topic '{topic}', bookmark {bookmark}.",
    ),
    "14-0004": Entry(
        "error",
        "{count} filters or messages of type {message_type} took more memory than one message may; they do not match.",
    ),
    "14-0005": Entry(
        "error",
        "the user-defined function {function} failed {count} times, and returned NULL; the last time: {reason}.",
    ),
    "14-0006": Entry(
        "warning",
        "{count} searches for patterns or through pairs of array elements, or functions of large messages, were "
        "given up because they took too long, or all filters of one message together did; the filters did not match.",
    ),
    "14-0007": Entry(
        "error",
        "{count} messages of type {message_type} end before a field that a filter uses; missing fields are NULL.",
    ),
    "14-0008": Entry(
        "warning",
        "client[{client}] bookmark {bookmark} of a query and subscription to '{topic}' counts as now: the topic has no "
        "History.",
    ),
    "16-0004": Entry("info", "client[{client}] {count} queued sow requests canceled."),
    "17-0001": Entry("trace", "client[{client}] message sent: {data}"),
    "17-0002": Entry("trace", "client[{client}] ack sent: {data}"),
    "19-0001": Entry("info", "administration interface listening on {address}."),
    "19-0002": Entry(
        "warning",
        "administration: {path} requested by {address}[[, user '{user}',]] was refused: {status} {reason}.",
    ),
    "19-0003": Entry("info", "administration: {path} was done for {address}[[, user '{user}']]."),
    "19-0004": Entry(
        "warning",
        "administration: {count} connections were closed unanswered, the last one of {address}: {reason}.",
    ),
    "19-0005": Entry(
        "warning",
        "administration: {address} was refused again, {count} more times in {seconds} seconds; the last request was "
        "for {path}[[, user '{user}',]] and was answered {status} {reason}.",
    ),
    "1D-0001": Entry(
        "info", "transaction log in {directory}: {records} records in {journals} journals recovered."
    ),
    "1D-0002": Entry("critical", "The transaction log cannot be opened: {reason}"),
    "1D-0003": Entry("critical", "The transaction log failed, nothing more is acknowledged: {reason}"),
    "1D-0004": Entry("warning", "{path} cannot be used ({reason}); scanning the journal to rebuild it."),
    "1D-0005": Entry(
        "warning",
        "{path}: the last batch was torn and is cut off at offset {offset} ({cut} bytes that were never acknowledged).",
    ),
    "1D-0006": Entry("warning", "{path}: the header of an unused journal was torn; it is made again."),
    "1D-0007": Entry(
        "warning", "there are no journals in {directory} although there were some; a new log begins."
    ),
    "1D-0008": Entry(
        "warning", "the next journal was not ready in time; publishers waited {milliseconds} ms."
    ),
    "1D-0009": Entry("info", "journal {path} is in use."),
    "1D-0010": Entry("critical", "journal {path} cannot be read at offset {offset}: {reason}."),
    "1D-0011": Entry(
        "info",
        "{path} is held by {holder}, which is ending; waiting until it has ended, at most {seconds} s.",
    ),
    "1D-0012": Entry(
        "warning", "{path} cannot be used ({reason}); the indexes of all journals are read instead."
    ),
    "1D-0013": Entry("info", "scanning {path}: {percent} % done."),
    "1D-0014": Entry("warning", "{path} is removed: {other} is the same journal."),
    "1D-0015": Entry(
        "info",
        "{count} publishers were silent for longer than InactiveClientAckExpiration and are treated as new now.",
    ),
    "1D-0016": Entry(
        "critical",
        "journal {path} was removed while it was in use; it is copied back to where it was.",
    ),
    "1D-0017": Entry(
        "critical",
        "{kind} {path} is missing, although it is part of the log (removed, moved, or its file system unmounted?); put "
        "it back: until then requests that need it are refused.",
    ),
    "1D-0018": Entry("warning", "{path} is there again[[, with {content}]]."),
    "1D-0019": Entry("critical", "{path} cannot be restored: {reason}."),
    "1D-0020": Entry(
        "warning",
        "index {path} cannot be used: {reason}; bookmarks in its journal are searched without it. The next start "
        "makes a new one.",
    ),
    "1D-0021": Entry(
        "critical",
        "the log begins with journal {first}: journals {missing_from} to {missing_to} are not in {directory}"
        "[[ or {archive}]], and were not removed by the server; replays omit their messages. If the archive was not "
        "mounted, mount it and start again; if they were removed on purpose, 'amps journal remove {directory} -name "
        "{instance} -up-to {up_to}' makes it known.",
    ),
    "1D-0022": Entry(
        "warning",
        "{path} is removed: it was never used, and it or one before it is damaged or missing.",
    ),
    "1D-0023": Entry(
        "warning",
        "the file system of {directory} has {free} free, less than {threshold}. When it is full, publishers are "
        "refused: make room there, or archive or remove journals earlier.",
    ),
    "1D-0024": Entry("warning", "the file system of {directory} has room again: {free} free."),
    "1D-0025": Entry(
        "critical", "journal {journal} was removed and cannot be restored; its messages are lost."
    ),
    "1D-0026": Entry(
        "warning", "{reason}; it is made again, and the links of replication compare their logs anew."
    ),
    "1E-0001": Entry(
        "info", "AMPS replication client session logon: {client}; instance {peer} at {address}."
    ),
    "1E-0002": Entry(
        "warning",
        "AMPS replication destination {destination} disconnected from {address}: {code}, {reason}; connecting again.",
    ),
    "1E-0003": Entry(
        "error",
        "replication client[{client}] validation of the replication configuration failed: {violation}",
    ),
    "1E-0004": Entry(
        "info", "AMPS replication resync started for replication client: {client}, behind txid {txid}."
    ),
    "1E-0005": Entry("info", "AMPS transaction log replay completed for replication client: {client}."),
    "1E-0006": Entry(
        "error",
        "replication client[{client}] the transactions {first} to {last} are in journals that were removed: the other "
        "instance never gets them from this one; compare the two instances.",
    ),
    "1E-0007": Entry(
        "warning", "replication client[{client}] the message with txid {txid} is not taken: {reason}."
    ),
    "1E-0008": Entry(
        "error",
        "replication client[{client}] validation of the replication configuration failed; the log of instance {peer} "
        "tells what to change.",
    ),
    "1E-0009": Entry("info", "replication client[{client}] has sent all that was missing here."),
    "1E-0010": Entry(
        "error",
        "AMPS replication destination {destination} refused by the instance at {address}: {code}, {reason}; trying "
        "again.",
    ),
    "1E-0011": Entry(
        "error",
        "AMPS replication destination {destination} at {address} failed: {code}, {reason}; trying again.",
    ),
    "1E-0012": Entry("info", "AMPS replication source logon: {client}; instance {peer} at {address}."),
    "1E-0013": Entry(
        "warning",
        "{path} cannot be used ({reason}); destinations are asked what they have, which may take longer.",
    ),
    "1E-0014": Entry(
        "warning",
        "{path} cannot be written ({reason}); the next start needs longer to synchronize destinations.",
    ),
    "1E-0015": Entry("error", "a replication connection from {address} was refused: {code}, {reason}."),
    "1E-0016": Entry("info", "AMPS replication source {client} disconnected.[[ Reason: {reason}.]]"),
    "1E-0017": Entry(
        "error",
        "AMPS replication destination {destination} downgraded from sync to async due to lack of activity in past "
        "{seconds} seconds",
    ),
    "1E-0018": Entry(
        "warning", "AMPS replication destination {destination} downgraded from sync to async by an operator."
    ),
    "1E-0019": Entry("info", "AMPS replication destination {destination} upgraded from async to sync"),
    "1E-0020": Entry(
        "critical",
        "AMPS replication destination {destination} gets no more messages, because the log cannot be read: {reason}.",
    ),
    "1E-0021": Entry(
        "error",
        "instance {peer} has transactions of this instance up to {txid}, beyond the end of this log: the storage has "
        "lost messages that were durable. A new epoch begins, and all instances compare what they have.",
    ),
    "1E-0022": Entry(
        "error",
        "replication client[{client}] a record that was sent here is malformed and not taken; the flow begins again.",
    ),
    "1F-0004": Entry(
        "info",
        "[{connection}] AMPS client session logon for: {client}\n"
        "client authid = '{auth_id}'\n"
        "client name hash = {name_hash}\n"
        "client version = {version}\n"
        "last acked client seq = {last_acked}\n"
        "last txn log client seq = {last_logged}\n"
        "correlation id = {correlation_id}",
    ),
    "21-0001": Entry("info", "client[{client}] replay for subscription {sub_id} begins at {bookmark}."),
    "21-0002": Entry("info", "client[{client}] replay for subscription {sub_id} reached the live messages."),
    "21-0003": Entry("info", "client[{client}] replay for subscription {sub_id} reached its end."),
    "21-0004": Entry("info", "{reason}: replays read the whole journal for now."),
    "21-0005": Entry(
        "warning",
        "{reason}; replays read the whole journal. Without that file the next start makes a new topic index.",
    ),
    "23-0001": Entry(
        "warning", "client[{client}] bookmark {bookmark} of subscription {sub_id} was not found."
    ),
    "25-0001": Entry("warning", "client[{client}] user '{user}' failed to authenticate: {reason}."),
    "25-0002": Entry(
        "warning", "client[{client}] user '{user}' is not entitled to {permission} '{resource}'."
    ),
    "25-0003": Entry("info", "authentication {state}."),
    "25-0004": Entry("info", "entitlement {state}."),
    "29-0001": Entry("info", "{text}"),
    "29-0002": Entry(
        "error", "action at {place}: {module} did not succeed: {reason}. Steps after it are skipped."
    ),
    "29-0003": Entry("info", "action at {place} begins; event: {event}."),
    "29-0004": Entry("info", "action at {place}: journals to {verb}: {journals}."),
    "29-0005": Entry("warning", "action at {place}: a command has not ended after {seconds} seconds."),
    "29-0006": Entry(
        "warning", "the event {event} occurred while too many earlier ones waited; it is skipped."
    ),
    "29-0007": Entry(
        "warning",
        "actions on {event} wait: {reason}. They continue automatically, also with unfinished messages.",
    ),
    "29-0008": Entry(
        "error",
        "actions on {event} do not run for a message at log position {position}, which cannot be read: {reason}.",
    ),
    "29-0009": Entry("error", "actions on messages wait, because the log cannot be read: {reason}."),
    "29-0010": Entry("warning", "{text}."),
    "29-0011": Entry(
        "warning",
        "actions on published messages have missed messages of topics that are not recorded: the services process was "
        "too far behind.",
    ),
    "2C-0003": Entry("critical", "journal {journal} cannot be prepared in {directory}: {reason}."),
    "2C-0004": Entry(
        "warning", "index {path} cannot be written ({reason}); it is rebuilt at the next start."
    ),
    "2C-0005": Entry("info", "journal {path} is archived in {directory}."),
    "2C-0006": Entry("info", "journal {path} is compressed: {before} bytes became {after}."),
    "2C-0007": Entry("info", "journal {path} is removed."),
    "2C-0008": Entry("info", "journal {path} is to be removed, but {reason}."),
    "2C-0009": Entry("error", "journal {path} cannot be {verb}: {reason}[[; {kept} stays as it is]]."),
    "2C-0010": Entry(
        "warning", "{path} cannot be written ({reason}); the next start reads the indexes instead."
    ),
    "2C-0011": Entry(
        "critical",
        "messages for recorded topics are refused: the next journal cannot be made in {directory}: {reason}; this is "
        "tried again every second.",
    ),
    "2C-0012": Entry(
        "warning", "messages for recorded topics are accepted again, after {seconds} seconds of refusing."
    ),
    "2C-0013": Entry("warning", "topic index {path} cannot be written ({reason}); replays work without it."),
    "2C-0014": Entry(
        "warning",
        "journal {path} is to be removed, but destinations of replication have not acknowledged what is in it and in "
        "later ones: {holders}. It is removed when they have; if one does not come back, remove it from the "
        "configuration and start the server again.",
    ),
    "30-0000": Entry(
        "warning", "thread {thread} has made no progress for {seconds} seconds and appears stuck."
    ),
    "30-0001": Entry(
        "warning",
        "thread {thread} has been waiting for the disk for {seconds} seconds, the current call for {call}; "
        "messages wait too. If that lasts, check the device of JournalDirectory.",
    ),
    "30-0002": Entry("info", "thread {thread} makes progress again after {seconds} seconds."),
    "30-0003": Entry(
        "error",
        "process[{process}] with pid {pid} has made no progress for {seconds} seconds and is killed, to be "
        "started again.",
    ),
    "31-0001": Entry("info", "queues: {text}."),
    "31-0002": Entry("info", "queues: {text}."),
    "31-0003": Entry("error", "queues: {text}."),
    "31-0004": Entry("warning", "queues: {text}."),
    "31-0005": Entry("warning", "queues: {text}."),
    "31-0006": Entry("warning", "queues: {text}."),
    "31-0007": Entry("info", "queues: {text}."),
    "31-0010": Entry("info", "queue diagnostics:\n{data}"),
    "32-0001": Entry("info", "SOW topics: {text}."),
    "32-0002": Entry("error", "SOW topics: {text}."),
    "32-0003": Entry("info", "SOW topics: {text}."),
    "32-0004": Entry("error", "SOW topics: {text}."),
    "32-0005": Entry("error", "SOW topics: {text}."),
    "70-0004": Entry("error", "client[{client}] is not consuming messages, disconnecting slow client"),
    "70-0011": Entry("warning", "client[{client}] slow consumption detected, offline messages."),
    "FF-0001": Entry("info", "shutdown requested[[ by {cause}]]."),
    "FF-0002": Entry("info", "connections closed, waiting for the transaction log."),
    "FF-0003": Entry("info", "shutdown complete."),
    "FF-0004": Entry("warning", "process[{process}] did not end in time and was killed."),
    "FF-0005": Entry(
        "warning",
        "the actions of the shutdown have not ended after {seconds} seconds; the shutdown continues.",
    ),
    "FF-0006": Entry(
        "critical",
        "the transaction log was not made durable in the shutdown: {reason}; messages that were not acknowledged may "
        "be missing from it; exit status {code}.",
    ),
    "FF-0007": Entry(
        "error", "process[{process}] with pid {pid} ended unexpectedly in the shutdown ({status})."
    ),
}

_OPTIONAL = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_FIELD = re.compile(r"\{(\w+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_FREE_TEXT = frozenset({"data", "text"})
"""Values that may contain several lines. In all others line breaks are escaped."""


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The text of a message. A missing value is shown as `?`: logging never fails."""
    if "[[" in template:
        template = _OPTIONAL.sub(
            lambda part: part[1] if all(values.get(name) for name in _FIELD.findall(part[1])) else "",
            template,
        )
    return _FIELD.sub(lambda field: shown(field[1], values.get(field[1], "?")), template)


def shown(name: str, value: object) -> str:
    """A value as it appears in a record; characters that could forge another record are escaped."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes | bytearray) else str(value)
    if name in _FREE_TEXT:
        return text
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)
