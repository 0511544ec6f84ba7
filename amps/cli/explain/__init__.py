"""`ampserr`: explanations of the event log's messages and of the reasons of refused commands.

`server_events` and `log_events` have a cause and a remedy for each id of the catalogue (`amps.server.eventlog`), by
category; `reasons` has them for each reason of a failure acknowledgement. `catalogue` joins them with the texts and
finds the nearest matches. `command` is the program. A test checks that every id and every reason has an explanation.
"""
