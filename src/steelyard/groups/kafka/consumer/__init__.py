"""Groups of the new consumer protocol (KIP-848), in which the coordinator assigns."""
