"""The options of `format("rocketmq")`: declared once, checked, and as data classes."""
