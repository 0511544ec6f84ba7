"""The administration interface: what the server is, and what can be done with it, over HTTP (operations.md §4, §5).

`tree` is the language of resources: leaves, groups, collections, operations. `instance` and `administrator` describe
what there is, in that language; a feature that has something to show or to do adds a node there. `formats` writes
nodes as JSON, XML or CSV, `pages` as pages. `access` says who may, `origins` on whose behalf a request comes, and
`confirmations` whether a browser's reader has said yes. `server` puts these behind HTTP, `guards` keeps connections
short.

Lives in the services process, on its event loop. Nothing here may take long without giving way.
"""
