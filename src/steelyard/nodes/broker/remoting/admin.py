"""Operators' requests about topics, groups and settings; further ones are in `progress`.

| code | request | answer |
|---|---|---|
| 17, 18, 215 | create or change one topic, several, delete one | when the nameservers know |
| 21, 201 | all topics, all groups | in one piece, which 5.x accepts |
| 351 | one topic's configuration | 17 if it does not exist; no mapping of static topics |
| 26 | settings as properties | |
| 200, 225, 207 | configure a group, several, forget one (and its offsets) | |
| 202 | how far each queue of a topic reaches | 17 if it does not exist |
| 305 | topics of the system | |
| 316 | delete the queues of topics that do not exist any more | nothing is to be done |

201 lists groups that were configured, have members, or have committed something. 5.x asks for 21
and 201 by pages. Of the attributes in 17 and 18, `cleanup.policy` has an effect; those of the Kafka
listener are not changed here. Ignored: permissions of the whole broker.
Source: broker/processor/AdminBrokerProcessor.java.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from steelyard.nodes.broker.parts import Parts
from steelyard.nodes.broker.remoting.consumer_groups import SubscriptionGroups
from steelyard.nodes.broker.remoting.offsets import CommittedOffsets
from steelyard.nodes.broker.remoting.pull import Pulls
from steelyard.nodes.broker.requests import Refusal, RemotingRequest, serves
from steelyard.nodes.broker.topics import COORDINATOR_TOPICS, ID_ATTRIBUTE, POLICY_ATTRIBUTE
from steelyard.nodes.broker.turns import Steps
from steelyard.nodes.seam import Effect
from steelyard.types import MessageQueue
from steelyard.wire.remoting import fastjson, headers
from steelyard.wire.remoting.bodies import (
    DataVersion,
    GroupConfigList,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from steelyard.wire.remoting.codes import RequestCode, ResponseCode
from steelyard.wire.remoting.command import Command

STEP_QUEUES = 500
"""Queues examined in one step of some 4 ms."""


class AdminHandlers:
    """Handlers of the requests above."""

    def __init__(
        self,
        parts: Parts,
        groups: SubscriptionGroups,
        committed: CommittedOffsets,
        pulls: Pulls,
    ) -> None:
        self._config = parts.config
        self._store = parts.store
        self._topics = parts.topics
        self._groups = groups
        self._committed = committed
        self._pulls = pulls
        self._registration = parts.registration
        self._registry = parts.registry

    # -- topics ----------------------------------------------------------------------------------

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC)
    def update_topic(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.CreateTopicRequestHeader)
        config = TopicConfig(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
            header.topic_filter_type,
            header.topic_sys_flag or 0,
            header.order,
            _attribute_changes(header.attributes or ""),
        )
        return self._put_topics(request, (config,), now, effects)

    @serves(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    def update_topics(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        configs = fastjson.read(TopicConfigList, request.body).topic_config_list
        return self._put_topics(request, configs, now, effects)

    def _put_topics(
        self,
        request: RemotingRequest,
        configs: tuple[TopicConfig, ...],
        now: int,
        effects: list[Effect],
    ) -> Command | None:
        """Create or change topics, all or none; their attributes are changes (`_asked_policy`)."""
        for config in configs:
            self._check_not_system(config.topic_name)
        configs = tuple(self._with_attributes(config) for config in configs)
        for config in configs:
            self._topics.check_config(config)
        new = [config for config in configs if config != self._topics.get(config.topic_name)]
        for config in new:
            self._topics.put(config, now)
            self._pulls.changed("", config.topic_name, effects)
        if new:
            self._registration.changed(now, effects)
        return self._registration.answer_when_known(request, request.reply(), effects)

    def _check_not_system(self, topic: str) -> None:
        """Raise Refusal for a topic of the servers, as the Kafka listener does for its own."""
        if topic in self._topics.system or topic in COORDINATOR_TOPICS:
            remark = f"The topic[{topic}] is conflict with system topic."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)

    def _with_attributes(self, asked: TopicConfig) -> TopicConfig:
        """Return a topic's settings with the attributes that it has after the changes asked for.

        Those that the Kafka listener gave it are changed there. Raises Refusal.
        """
        known = self._topics.get(asked.topic_name)
        attributes = {} if known is None else known.attributes
        policy = _asked_policy(asked.attributes)
        if policy and ID_ATTRIBUTE not in attributes:
            attributes = {**attributes, POLICY_ATTRIBUTE: policy}
        return replace(asked, attributes=attributes)

    @serves(RequestCode.DELETE_TOPIC_IN_BROKER)
    def delete_topic(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Command | None:
        header = request.header(headers.TopicRequestHeader)
        self._check_not_system(header.topic)
        if self._topics.get(header.topic) is not None:
            self.delete(header.topic, now, effects)
        return self._registration.answer_when_known(request, request.reply(), effects)

    def delete(self, topic: str, now: int, effects: list[Effect]) -> None:
        """Delete a topic with its messages and offsets, and tell the nameservers.

        Raises StorageError.
        """
        # The settings are deleted last, so that the request can be repeated if the disk fails.
        self._store.delete_topic(topic)
        self._committed.delete_topic(topic)
        self._topics.delete(topic, now)
        self._pulls.changed("", topic, effects)
        self._registration.changed(now, effects)

    @serves(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_topics(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        body = TopicConfigTable(self._topics.all(), self._topics.version)
        return request.reply(body=fastjson.write(body))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        return request.reply(body=fastjson.write(TopicList(tuple(sorted(self._topics.system)))))

    @serves(RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_topics(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        return request.reply()

    @serves(RequestCode.GET_TOPIC_CONFIG)
    def one_topic(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.TopicRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"No topic in this broker. topic: {header.topic}"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        return request.reply(body=fastjson.write(config))

    @serves(RequestCode.GET_TOPIC_STATS_INFO)
    def topic_stats(
        self, request: RemotingRequest, now: int, effects: list[Effect]
    ) -> Steps[Command]:
        header = request.header(headers.TopicRequestHeader)
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            queue = MessageQueue(header.topic, self._config.name, queue_id)
            table[queue] = self._reach(header.topic, queue_id)
            if queue_id % STEP_QUEUES == STEP_QUEUES - 1:
                yield
        return request.reply(body=fastjson.write(TopicStatsTable(table)))

    def _reach(self, topic: str, queue_id: int) -> TopicOffset:
        log = self._store.log(topic, queue_id)
        if log is None:
            return TopicOffset(0, 0, 0)
        empty = log.min_offset == log.max_offset
        updated = 0 if empty else log.stored_at(log.max_offset - 1)
        return TopicOffset(log.min_offset, log.max_offset, updated)

    # -- groups ----------------------------------------------------------------------------------

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    def update_group(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        self._put_group(fastjson.read(SubscriptionGroupConfig, request.body), now, effects)
        return request.reply()

    def _put_group(self, config: SubscriptionGroupConfig, now: int, effects: list[Effect]) -> None:
        self._groups.put(config, now)
        self._pulls.changed(config.group_name, "", effects)

    @serves(RequestCode.DELETE_SUBSCRIPTIONGROUP)
    def delete_group(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        header = request.header(headers.DeleteSubscriptionGroupRequestHeader)
        self._groups.delete(header.group_name, now)
        if header.clean_offset or header.remove_offset:
            self._committed.delete_group(header.group_name)
        return request.reply()

    @serves(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_groups(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        found = {*self._committed.groups(), *self._registry.groups()}
        table = {group: self._groups.get(group) for group in sorted(found)} | self._groups.all()
        body = SubscriptionGroupTable(table, self._groups.version)
        return request.reply(body=fastjson.write(body))

    @serves(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
    def update_groups(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        configs = fastjson.read(GroupConfigList, request.body).group_config_list
        for config in configs:
            self._groups.check_config(config)
        for config in configs:
            self._put_group(config, now, effects)
        return request.reply()

    # -- the broker itself -----------------------------------------------------------------------

    @serves(RequestCode.GET_BROKER_CONFIG)
    def broker_config(self, request: RemotingRequest, now: int, effects: list[Effect]) -> Command:
        config = self._config
        settings = {
            "autoCreateTopicEnable": str(config.auto_create_topics).lower(),
            "brokerClusterName": config.cluster,
            "brokerId": "0",
            "brokerName": config.name,
            "brokerRole": "ASYNC_MASTER",
            "defaultTopicQueueNums": str(config.default_queues),
            "flushDiskType": "SYNC_FLUSH" if config.flush == "sync" else "ASYNC_FLUSH",
            "maxMessageSize": str(config.store.message_bytes_max),
            "namesrvAddr": ";".join(config.nameservers),
            # Steelyard's own: 222 accepts queueId and offset, unlike that of 4.9.
            "resetOffsetOfOneQueue": "true",
        }
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        version = _version_text(self._topics.version)
        return request.reply(ext={"version": version}, body=text.encode())


def _version_text(version: DataVersion) -> str:
    return f'{{"counter":{version.counter},"timestamp":{version.timestamp}}}'


_POLICIES = {"DELETE": "delete", "COMPACTION": "compact"}
"""The values of RocketMQ's attribute, and what they are called in Kafka's settings."""


def _attribute_changes(text: str) -> dict[str, str]:
    """Return the attributes in the header of 17, `+name=value` or `-name` separated by commas.

    Source: common/attribute/AttributeParser.java.
    """
    pairs = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return {name: value for name, _, value in pairs}


def _asked_policy(changes: Mapping[str, str]) -> str:
    """Return the cleanup policy in changes of attributes, "" without one; Kafka's name for it.

    `changes`: `+name` with the value to set, or `-name` for the default. Raises Refusal for any
    other name and for an unknown policy. Source: common/attribute/AttributeUtil.java,
    common/TopicAttributes.java.
    """
    policy = ""
    for name, value in changes.items():
        if not name.startswith(("+", "-")):
            remark = f"wrong format key: {name[:100]}; expected +name to set it, -name to remove it"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if name == f"-{POLICY_ATTRIBUTE}":
            policy = "delete"
        elif name == f"+{POLICY_ATTRIBUTE}":
            if value not in _POLICIES:
                remark = f"value is not in set: {sorted(_POLICIES)}"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            policy = _POLICIES[value]
    return policy
