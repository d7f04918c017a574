"""RocketMQ groups: members compute their shares.

Brokers keep member lists, locks, subscriptions.
"""
