"""The rebalance ledger: records about groups (`events`) and the cost of a rebalance (`cost`)."""
