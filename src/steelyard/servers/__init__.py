"""Nameservers and brokers as processes: one in this process (`server`), or supervised ones (`supervisor`)."""
