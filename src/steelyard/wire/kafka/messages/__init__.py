"""Requests, responses, and the `Api` that binds two of them to a key and versions.

APIs of one subject stand together.

Names are those of the message definitions of Apache Kafka, in Python's spelling, and so is the
order of the fields. Where its definitions have the same structure under several names, one serves
them all.
"""
