"""The rebalance ledger: what brokers record of their groups (`events`), and what a rebalance cost (`cost`)."""
