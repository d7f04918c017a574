"""The clients for asyncio, one module each; `steelyard.aio` shows them to users."""
