"""An administrator's methods, by subject.

`client.aio.admin` and `client.blocking.admin` combine them.
"""
