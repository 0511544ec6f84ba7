"""The administration interface: the state of the server, and operations on it, over HTTP (operations.md §4, §5).

`tree` has the types of resources: leaves, groups, collections, operations. `instance` and `administrator` describe the
resources with them; a feature with values to show or operations to offer adds a node there. `formats` writes nodes as
JSON, XML or CSV, `pages` as HTML pages. `access` checks permissions, `origins` determines the page from which a request
comes, and `confirmations` checks that the user of a browser has confirmed an operation. `server` offers all this over
HTTP, `guards` limits connections.

It runs in the services process, on its event loop. No code here may run for long without yielding to the loop.
"""
