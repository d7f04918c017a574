"""The broker among others: joining, registration with nameservers, requests between brokers."""
