"""Messages delayed to the millisecond: how they wait, and how they are delivered or recalled."""
