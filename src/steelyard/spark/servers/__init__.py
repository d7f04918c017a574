"""Nameservers and brokers: blocking connections, what nameservers know, new attempts."""
