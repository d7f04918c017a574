"""A member of a classic group: it joins each generation, and may be the one that assigns."""
