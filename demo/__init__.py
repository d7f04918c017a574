"""The main job: 336,776 flights through two brokers and a consumer group that changes all the time.

`flights` reads the input, `publisher` and `member` are programs of their own that use the public
API only, `cluster` starts and kills them and the servers, `story` says what happens in which order,
`__main__` prints it, checks the outcome and runs the Spark jobs.
"""
