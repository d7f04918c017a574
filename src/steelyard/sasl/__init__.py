"""SASL without input and output: the exchanges of both sides for every mechanism, and credentials.

A server makes an exchange of the mechanism that the client has chosen (`server`), and feeds it the
client's tokens; a client makes one of its login (`client`). Whoever is not known raises nothing:
the outcome of each step is a value. Random texts and the time are arguments. Secrets are in no
`repr`.
"""
