"""Explanations of events of processes, clients, transports and the administration interface (categories 00 to 19)."""

from collections.abc import Mapping

from amps.cli.explain.advice import Advice

SERVER_EVENTS: Mapping[str, Advice] = {
    "00-0000": Advice("A text for developers, logged at level trace."),
    "00-0001": Advice("The server starts; the record has its name, version and licence."),
    "00-0002": Advice("The server starts; the record has the time of its build."),
    "00-0004": Advice(
        "The server starts; the record has the configuration with includes and variables expanded."
    ),
    "00-0005": Advice(
        "The configuration has an element or a value that works but may not do what is meant.",
        "Read the text, and correct the configuration at the file and line that it names.",
    ),
    "00-0006": Advice("A remark on the configuration, such as an element without effect in this version."),
    "00-0007": Advice(
        "The name of a configured topic has characters of regular expressions. A subscription to it is read as an "
        "expression, and may match other topics too.",
        "Rename the topic, or let subscribers use the option non_regex_topic.",
    ),
    "00-0009": Advice(
        "The server could not start: the reason names the port, the file or the element of the configuration.",
        "Remove the cause that the text names and start again. 'ampServer --verify-config FILE' checks it.",
    ),
    "00-0015": Advice("The server is ready and accepts clients."),
    "00-0030": Advice("The server starts; the record describes the host."),
    "00-0032": Advice(
        "The server starts; the record has the limits of the process.",
        "If the number of open files is small for the expected clients and journals, raise it (ulimit -n).",
    ),
    "00-0033": Advice("The server starts with this configuration file."),
    "00-0054": Advice("The server starts; the record has process id, user and working directory."),
    "01-0001": Advice("The supervisor has started one of the processes of the server."),
    "01-0002": Advice(
        "A process of the server ended by itself or was killed, for example by the kernel's out-of-memory killer. The "
        "supervisor starts it again; clients of a transport are disconnected.",
        "Look at the records before, and at the kernel's log (dmesg). Give the server more memory, or report a defect.",
    ),
    "01-0003": Advice(
        "A process ended again and again within a short time, so the supervisor gives up and the server ends.",
        "Look at the records of its ends (01-0002) and remove their cause before starting again.",
    ),
    "01-0004": Advice(
        "The core ended unexpectedly. The supervisor starts all processes again and recovers the state from the log.",
        "Nothing acknowledged is lost; clients must reconnect. Find the reason as for 01-0002.",
    ),
    "01-0005": Advice(
        "Code of the server failed in a way that is not provided for.", "Report the whole record."
    ),
    "01-0006": Advice(
        "The server met a failure after which it cannot guarantee anything, and ends.",
        "Remove the cause that the text names, then start again: it recovers from the log.",
    ),
    "01-0007": Advice(
        "The storage of the transaction log fails: the disk is full, read-only, or away. Clients are refused.",
        "Make room on the device or bring it back. The server tries again by itself.",
    ),
    "01-0008": Advice("The storage can be used again; this record ends the state of 01-0007."),
    "01-0009": Advice(
        "A process that messages do not need, such as the services process, ends again and again.",
        "Look at the records before. Actions and the administration interface do not work meanwhile.",
    ),
    "01-0010": Advice(
        "The log has lost messages that other instances have (1E-0021). The replication process begins anew with a new "
        "epoch, and all instances compare what they have.",
    ),
    "01-0022": Advice(
        "A process crashed and left a dump.", "Report it with the dump and the records before."
    ),
    "01-0031": Advice(
        "The log process could not write as fast as records were made, so some are missing.",
        "Raise the level of the log targets, or use a faster device for them.",
    ),
    "01-0032": Advice(
        "A log target cannot be written: its disk is full, or its directory is missing or not writable.",
        "Make room or correct the permissions. The server continues without this target and tries again.",
    ),
    "01-0033": Advice("A log target works again; the record has the number of records missing in it."),
    "02-0001": Advice(
        "A client sent bytes that are no frame of the protocol, or a header that cannot be parsed; it is disconnected. "
        "Often the client speaks another protocol, or TLS to a transport without it.",
        "Compare protocol, message type and scheme of the client with the transport.",
    ),
    "02-0025": Advice(
        "A client logged on with the name of a connected client. The older connection ends.",
        "If this was no reconnect, give each client a name of its own.",
    ),
    "02-0026": Advice(
        "A client logged on with the name of a client of another user, and was refused.",
        "Give each client a name of its own.",
    ),
    "02-0027": Advice(
        "Several clients use one name and end each other's connections in turn.",
        "Give each client a name of its own.",
    ),
    "02-0030": Advice(
        "A command was refused; the text has the same reason and detail that the client got.",
        "Look up the reason: ampserr REASON.",
    ),
    "07-0001": Advice("A client connected; it has not logged on yet."),
    "07-0013": Advice(
        "The connection of a client ended. Without a reason the client closed it or the network ended it.",
        "If there is a reason, look it up: ampserr REASON. Repeated ends without one point to the client's host or to "
        "a device between that drops idle connections: use heartbeats.",
    ),
    "07-0042": Advice(
        "A client that requested heartbeats was silent for too long: it is stuck, its host is overloaded, or the "
        "network dropped the connection.",
        "Look for long-running message handlers and pauses in the client, or make its heartbeat interval longer.",
    ),
    "07-0047": Advice("A transport was disabled, by an action or in the administration interface."),
    "07-0048": Advice("A transport was enabled, by an action or in the administration interface."),
    "08-0001": Advice(
        "A client subscribed to a topic that is meant as a regular expression and cannot be parsed.",
        "Correct the expression, or use the option non_regex_topic for a literal name.",
    ),
    "11-0001": Advice("A transport accepts connections at this address."),
    "11-0002": Advice(
        "A transport refused a connection: a limit of connections is reached, or TLS was not agreed on.",
        "Raise the limit, or compare the client's TLS settings with the transport's.",
    ),
    "11-0004": Advice(
        "The system refuses new connections, usually because the limit of open files is reached.",
        "Raise the limit of open files (ulimit -n, LimitNOFILE), or reduce the number of clients.",
    ),
    "12-0001": Advice("A client sent this publish; logged at level trace."),
    "12-0002": Advice("A client sent this subscribe; logged at level trace."),
    "12-0003": Advice("A client sent this unsubscribe; logged at level trace."),
    "12-0004": Advice("A client sent this flush; logged at level trace."),
    "12-0005": Advice("A client sent this heartbeat; logged at level trace."),
    "12-0009": Advice("A client sent this command; logged at level trace."),
    "12-0010": Advice("A client sent this logon; logged at level trace."),
    "12-1002": Advice("A replication acknowledgement was received; logged at level trace."),
    "14-0001": Advice("A subscription began."),
    "14-0002": Advice("A subscription ended."),
    "14-0003": Advice(
        "Messages are not of the message type of their topic, so filters cannot read their fields.",
        "Find the publisher by the topic and bookmark in the text; compare its message type with the bodies it sends.",
    ),
    "14-0004": Advice(
        "A filter, or a message that a filter reads, needs more memory than a message may use.",
        "Make the filter simpler or the messages smaller.",
    ),
    "14-0005": Advice(
        "A user-defined function raised an error; the expression got NULL.",
        "Correct the function for the arguments that the reason shows.",
    ),
    "14-0006": Advice(
        "A filter takes too long, such as a pattern with nested repetitions; it was given up and did not match.",
        "Make the pattern or the filter simpler.",
    ),
    "14-0007": Advice(
        "Messages of a fixed layout are shorter than their type says.",
        "Compare the definition of the message type with what the publisher sends.",
    ),
    "14-0008": Advice(
        "The query answers with the current state, and the subscription begins with new messages.",
        "Query the state of a moment with the command sow and a bookmark, if the topic is in the transaction log.",
    ),
    "16-0004": Advice("A client disconnected while its queries waited; they are not answered."),
    "17-0001": Advice("The server sent this message to a client; logged at level trace."),
    "17-0002": Advice("The server sent this acknowledgement to a client; logged at level trace."),
    "19-0001": Advice("The administration interface accepts requests at this address."),
    "19-0002": Advice(
        "A request to the administration interface was refused; the text has the status and the reason.",
        "Check the user's name, password and permissions after 401 and 403; other reasons name the mistake.",
    ),
    "19-0003": Advice("An operation of the administration interface was run."),
    "19-0004": Advice(
        "Connections to the administration interface were closed without an answer: too many, or too slow.",
        "Let scripts use fewer connections at a time, and end their requests.",
    ),
    "19-0005": Advice(
        "The same address is refused again and again; the text has the number of times.",
        "Find the script or the browser at this address and correct its credentials or its path.",
    ),
}
