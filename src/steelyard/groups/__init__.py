"""Membership of consumer groups, one package for each dialect. `doctor` and `overview` are for operators of both."""
