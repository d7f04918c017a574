"""The blocking clients, one module each; `steelyard` shows them to users.

All blocking clients of a process share one event loop in a background thread. Callers wait in their
own threads; listeners run in worker threads of their consumer.
"""
