"""What the console asks nameservers and brokers of RocketMQ's protocol, Apache's and ours."""
