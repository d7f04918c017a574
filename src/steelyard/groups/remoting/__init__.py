"""RocketMQ groups: members compute their shares; brokers keep members, locks, subscriptions."""
