"""One module per API: its request, its response, and the `Api` that binds them to a key and versions.

Names are those of the message definitions of Apache Kafka, in Python's spelling, and so is the order of the fields.
"""
