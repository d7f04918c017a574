"""Names and numbers on which RocketMQ's clients, brokers and nameservers agree.

Source: common/MixAll.java, common/constant/PermName.java, common/topic/TopicValidator.java,
common/stats/Stats.java, common/help/FAQUrl.java.
"""

from __future__ import annotations

import re

NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
"""Names of topics and groups (TopicValidator.java, client/Validators.java)."""

MASTER_ID = 0
"""The id of a master broker."""

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
"""Bits of a topic's permission."""

DEFAULT_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
"""The topic after which automatically created topics are modelled."""
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
"""Prefixes of the topics for a group's retries and dead letters."""
TOPIC_CHARACTERS_MAX = 127
CLIENT_GROUP_CHARACTERS_MAX = 255
"""Longest name of a group for clients (client/Validators.java); brokers take shorter ones."""

DELAY_LEVEL_MAX = 18
RETRY_LEVEL = 3
"""Delay level of the first retry: 10 s."""

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
"""Statistic of a topic: messages sent to it."""
GROUP_GET_NUMS = "GROUP_GET_NUMS"
"""Statistic of `topic@group`: messages delivered to the group."""

FAQ = "\nSee https://rocketmq.apache.org/docs/faq/ for further details."
"""End of remarks about something that does not exist."""


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group
