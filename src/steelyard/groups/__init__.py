"""Membership of consumer groups, one package per dialect; `doctor` and `overview` serve both."""
