"""Names and numbers that clients, brokers and nameservers of RocketMQ agree on without a message about them.

Source: common/MixAll.java, common/constant/PermName.java, common/topic/TopicValidator.java, common/stats/Stats.java,
common/help/FAQUrl.java.
"""

from __future__ import annotations

MASTER_ID = 0
"""The id of a broker that is no slave."""

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
PERM_READ_WRITE = PERM_READ | PERM_WRITE
"""Bits of a topic's permission."""

DEFAULT_TOPIC = "TBW102"
"""A topic that is made because somebody sends to it takes after this one."""
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
"""A group's messages that are to be tried again, and those that were tried too often, are in topics of these names."""
TOPIC_CHARACTERS_MAX = 127

DELAY_LEVEL_MAX = 18
RETRY_LEVEL = 3
"""Delay level of the first retry: 10 s."""

TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"
"""Statistic of a topic: messages sent to it."""
GROUP_GET_NUMS = "GROUP_GET_NUMS"
"""Statistic of `topic@group`: messages given to the group."""

FAQ = "\nSee https://rocketmq.apache.org/docs/faq/ for further details."
"""Ends a remark on what is not there."""


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group
