"""`amps top`: a live view of clients, subscriptions, topics and queues in a terminal.

`interface` reads the administration interface over HTTP. `state` has its values as rows and computes rates between two
readings; it does no input or output. `view` draws rows with rich, `terminal` reads keys and restores the terminal,
`live` joins them in a loop, with a thread that reads the values. `command` is the command. The view shows what the
administration interface offers: clients and topics are those of subscriptions and queues.
"""
