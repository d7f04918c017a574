"""What an administrator does, by subject. `live.aio.admin` and `live.blocking.admin` put it together."""
