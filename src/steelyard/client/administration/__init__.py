"""What an administrator does, by subject. `client.aio.admin` and `client.blocking.admin` put it together."""
