"""How much clients may send and read, and how those who do more are slowed down."""
