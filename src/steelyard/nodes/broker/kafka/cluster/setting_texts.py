# Written by tools/settings.py from config.py: change that one, then `./dev generate`.
"""What the broker's settings mean, by Kafka's names: the documentation in DescribeConfigs."""

from __future__ import annotations

from collections.abc import Mapping

SETTING_TEXTS: Mapping[str, str] = {
    "node.id": "Id of the broker, unique in the cluster.",
    "num.partitions": "Partitions of topics that are created without a number.",
    "auto.create.topics.enable": "Create a topic when a client requests its metadata.",
    "delayed.records": "Delay records with a header TIMER_DELIVER_MS, TIMER_DELAY_MS or TIMER_DELAY_SEC. To find them, compressed batches are unpacked. False: headers have no meaning.",
    "message.max.bytes": "Largest record batch.",
    "offsets.topic.num.partitions": "Number of partitions over which groups are distributed.",
    "offset.metadata.max.bytes": "Maximum length of the metadata of a committed offset.",
    "offsets.retention.minutes": "Time after which the offsets of a group without members are deleted.",
    "offsets.retention.check.interval.ms": "Interval of the search for expired offsets.",
    "group.min.session.timeout.ms": "Minimum session time-out of members of classic groups.",
    "group.max.session.timeout.ms": "Maximum session time-out of members of classic groups.",
    "group.initial.rebalance.delay.ms": "Time that the first rebalance of an empty group waits for further members. With delayed_answers it ends as soon as none has come for 200 ms. 3000 in the code of Apache Kafka, 0 in the settings it ships with.",
    "group.heartbeat.wait.max.ms": "Longest time that an answer to a heartbeat waits for a rebalance, if delayed_answers is on. It is never more than a third of the session time-out, and must stay below the request time-out of clients: 10 s in franz-go, 30 s in the Java client. The default is longer than the interval of automatic commits, 5 s: a commit ends the wait, and the client sends its next heartbeat at once if the last one is more than an interval old. Kafka has no such setting.",
    "group.join.window.max.ms": "Longest time for which members that join one after the other are collected. They become one rebalance, if delayed_answers is on. In classic groups a join also waits until all members can be told of the rebalance at the same time, for 3.3 s at most, and leaves within 100 ms are one rebalance. A member that leaves or expires ends the wait. 0: each join and leave is a rebalance, as in Kafka, which has no such setting.",
    "group.flapping.delay.max.ms": "Longest delay of the return of a client that joins and goes again and again. The delay begins at 1000 ms with the third time in half an hour that the client left within a minute of joining, and doubles with each further one. 0: such clients are only told of, in the log, the ledger and kafkaGroup. Kafka has no such setting.",
    "group.max.size": "Maximum members of a classic group.",
    "group.consumer.session.timeout.ms": "Silence after which a member of a KIP-848 group is removed.",
    "group.consumer.heartbeat.interval.ms": "Heartbeat interval of members of KIP-848 groups.",
    "group.consumer.max.size": "Maximum members of a KIP-848 group.",
    "group.consumer.assignment.interval.ms": "Minimum time between two target assignments of a group. 0 up to Kafka 4.2 and here; 1000 since 4.3, which makes members that join within a second of each other wait for their next heartbeat.",
    "group.consumer.migration.policy": "Whether groups with members change between the classic protocol and KIP-848. upgrade: when a member of the latter joins; downgrade: when the last one leaves. Kafka's default is bidirectional.",
    "transactional.id.expiration.ms": "Time after which an id without transactions is forgotten.",
    "transaction.max.timeout.ms": "Maximum time-out of a transaction.",
    "transaction.state.log.num.partitions": "Number of partitions over which transactions are distributed.",
    "producer.id.expiration.ms": "Time after which a silent producer's sequence numbers are forgotten.",
    "max.incremental.fetch.session.cache.slots": "Maximum number of fetch sessions.",
    "max.connections": "Maximum number of connections to the Kafka listener, also limited by the open files.",
    "max.connections.per.ip": "Maximum number of connections from one IP address.",
    "ssl.certificate.file": "PEM file with the certificate of the listener and its chain; with it, connections use TLS. Reloaded within a second when it changes, like the two files below. Kafka: the first part of ssl.keystore.location with ssl.keystore.type=PEM.",
    "ssl.key.file": "PEM file with the certificate's key, without a password; empty: it is in the same file.",
    "ssl.client.ca.file": "PEM file with the certificates of those who may sign clients' certificates. Kafka: ssl.truststore.location with ssl.truststore.type=PEM.",
    "ssl.client.auth": "Whether clients must show a certificate that ssl_client_ca_file vouches for.",
    "sasl.enabled.mechanisms": "How clients log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Empty: nobody does.",
    "connections.max.reauth.ms": "Time after which a client must log in again on its connection; 0: it need not.",
    "connection.failed.authentication.delay.ms": "Delay of the answer to a failed login; it grows if an address fails again and again.",
    "super.users": "Principals that may do everything, such as User:admin; Kafka: super.users.",
    "allow.everyone.if.no.acl.found": "Allow everybody what no rule concerns.",
    "sasl.oauthbearer.unsecured": "Accept tokens that nobody has signed, with OAUTHBEARER: only where everybody is trusted.",
    "log.retention.check.interval.ms": "Interval of the search for segments past their retention (Kafka: 5 minutes).",
    "log.cleaner.backoff.ms": "Interval of the search for compacted topics with enough to compact; 0: nothing is compacted.",
}
