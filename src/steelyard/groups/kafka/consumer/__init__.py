"""Groups of the new consumer protocol (KIP-848): the coordinator itself says who reads what."""
