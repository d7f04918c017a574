"""Kafka's wire protocol, sans I/O.

`messages` declares the messages, `schema` compiles them to codecs, `frame` frames requests and
responses, `records` handles record batches.
"""
