"""What the console asks Kafka's brokers, Apache's and ours, by Kafka's protocol."""
