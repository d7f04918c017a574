"""The broker.

`remoting` and `kafka` serve one dialect each and never import each other. `peers` has the requests
between brokers. The modules beside them are shared by both dialects.
"""
