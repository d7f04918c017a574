"""Runs nodes on asyncio: connections, files, timers, and what is logged when a node fails."""
