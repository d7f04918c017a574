"""A broker among others: registration with the nameservers, and the requests that brokers send each other."""
