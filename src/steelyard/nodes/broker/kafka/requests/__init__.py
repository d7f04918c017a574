"""How requests of Kafka clients come in and are answered: order, versions, very large ones, repeated names."""
