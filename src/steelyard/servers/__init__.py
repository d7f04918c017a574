"""Nameservers and brokers: in this process (`server`), or supervised (`supervisor`)."""
