"""Servers inside of programs, above all of tests: `steelyard.Server`, and the pytest plugin.

`server` and `aio` are the public classes; `attached` is what they have in common with servers of
other processes. `processes` and `in_process` are the two ways to run servers, in a `folder`. What
they are asked for goes over the wire: `groups` disturbs consumer groups, `costs` reads the ledger.
`plugin` has the fixtures of pytest, with their `faults`, and `shared` is the one server of all
workers of pytest-xdist.
"""
