"""The RocketMQ consumers: push and lite pull (`node`), and single pulls (`puller`)."""
