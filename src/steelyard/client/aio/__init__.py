"""The asyncio clients, one module each; `steelyard.aio` exports them."""
