"""RocketMQ groups: every member computes its share from the same list; brokers keep lists, locks and subscriptions."""
