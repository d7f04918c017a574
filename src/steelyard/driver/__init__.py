"""Running nodes on asyncio: connections, files, timers, and the logging of failures."""
