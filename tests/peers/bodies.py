"""What fastjson makes of texts that are loose in their types, names or punctuation.

`python -m tests.peers.bodies` prints `tests/golden/fastjson-1.2.83.jsonl`, which `tests/wire/test_casts.py` reads.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.peers import apache

GOLDEN = Path(__file__).parent.parent / "golden" / "fastjson-1.2.83.jsonl"

_PROTOCOL = "org.apache.rocketmq.remoting.protocol"
CLASSES = {
    "HeartbeatData": f"{_PROTOCOL}.heartbeat.HeartbeatData",
    "SubscriptionData": f"{_PROTOCOL}.heartbeat.SubscriptionData",
    "LockBatchBody": f"{_PROTOCOL}.body.LockBatchRequestBody",
    "ResetOffsetBody": f"{_PROTOCOL}.body.ResetOffsetBody",
    "TopicRouteData": f"{_PROTOCOL}.route.TopicRouteData",
    "TopicConfig": "org.apache.rocketmq.common.TopicConfig",
    "SubscriptionGroupConfig": f"{_PROTOCOL}.subscription.SubscriptionGroupConfig",
}
"""Our bodies, and Java's classes for them in 5.3.3."""


def _consumer(*fields: str) -> list[str]:
    return [
        '{"clientID":"c","consumerDataSet":[{"groupName":"g",%s}]}' % field  # noqa: UP031
        for field in fields
    ]


def _subscription(*fields: str) -> list[str]:
    """With a version: without one, Java takes the time."""
    return ['{"topic":"t","subVersion":1,%s}' % field for field in fields]  # noqa: UP031


def _version(*values: str) -> list[str]:
    return ['{"topic":"t","subVersion":%s}' % value for value in values]  # noqa: UP031


def _queue(*fields: str) -> list[str]:
    return [
        '{"consumerGroup":"g","clientId":"c","mqSet":[{"topic":"t",%s}]}' % field  # noqa: UP031
        for field in fields
    ]


TEXTS: dict[str, list[str]] = {
    "HeartbeatData": [
        '{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":1,"messageModel":1,"consumeFromWhere":4,'
        '"subscriptionDataSet":[{"topic":"t","subString":"*","subVersion":"17","tagsSet":["a"],"codeSet":[97]}]}]}',
        *_consumer(
            '"consumeType":"consume_actively","messageModel":"broadcasting","consumeFromWhere":"CONSUME_FROM_MIN_OFFSET"',
            '"consumeType":"Consume_Actively"',
            '"consumeType":"nonsense","messageModel":"","consumeFromWhere":null',
            '"consumeType":0',
            '"consumeType":2',
            '"consumeType":3',
            '"consumeType":-1',
            '"consumeType":"1"',
            '"consumeType":1.0',
            '"consumeType":true',
            '"messageModel":0',
            '"messageModel":2',
            '"consumeFromWhere":0',
            '"consumeFromWhere":1',
            '"consumeFromWhere":5',
            '"consumeFromWhere":6',
            *(f'"unitMode":{value}' for value in ("true", "1", "2", "0", "1.0", "null", "[]")),
            *(
                f'"unitMode":"{value}"'
                for value in ("true", "TRUE", "1", "0", "Y", "y", "T", "t", "N", "n", "F", "f")
            ),
            *(f'"unitMode":"{value}"' for value in ("", "null", "yes", "2", "false")),
        ),
        '{"clientID":7}',
        '{"clientID":true}',
        '{"clientID":null}',
        "{}",
        '{"clientID":1.50}',
        '{"clientID":1e3}',
        '{"clientID":["c"]}',
        '{"clientID":{"a":1}}',
        "{'clientID':'c'}",
        '{clientID:"c"}',
        '{"clientID":"c",}',
        '{,,"clientID":"c",,}',
        '{/* a */"clientID":"c"}',
        '/* a */{"clientID":"c"/* b */}',
        '{"clientid":"c"}',
        '{"client_id":"c"}',
        '{"CLIENTID":"c"}',
        '{"client-ID":"c","producer_data_set":[{"group-name":"p"}]}',
        '{"isClientID":"c"}',
        '{"clientID":"a","clientID":"b"}',
        '{"clientID":"a","clientId":"b"}',
        '{"clientId":"b","clientID":"a"}',
        '{"clientID":"c","consumerDataSet":{"groupName":"g"}}',
        '{"clientID":"c","consumerDataSet":null}',
        '{"clientID":"c","consumerDataSet":""}',
        '{"clientID":"c","consumerDataSet":[]}',
        '{"clientID":"c","consumerDataSet":"g"}',
        '{"clientID":"c","consumerDataSet":[null]}',
        '{"clientID":"c","nonsense":{"a":[1,{"b":2}]}}',
        '{"clientID":"c","nonsense":undefined}',
        '{"clientID":"c"} trailing',
        '{"clientID":"c"}}',
        '[{"clientID":"c"}]',
        '"c"',
        '{"clientID":"c"',
        '{"clientID":"a\\x41"}',
        '{"clientID":"a\\\'b"}',
        '{"clientID":"\\u0041\\v\\0\\7"}',
        '{"clientID":"\\uD83D\\uDE00\\x41"}',
        '{"clientID":"c","heartbeatFingerprint":"12","withoutSub":"1"}',
    ],
    "SubscriptionData": [
        *_version('"17"', "17.9", "-17.9", '"17.9"', '"17.0"', '"1,700"', "true", '"+17"', '" 17"'),
        *_version("1e3", '"1e3"', "17L", "9223372036854775807", "9223372036854775808", "[1]"),
        *_version('"9223372036854775808"', '"abc"', "017", "1.", ".5", "+5", "-5", "1e500"),
        *_subscription(
            '"codeSet":["97",98,9.7,true]',
            '"codeSet":["-97","+98","1,000","99.0"]',
            '"codeSet":[97.0,1e2]',
            '"codeSet":[4294967296]',
            '"codeSet":["4294967296"]',
            '"codeSet":"97"',
            '"codeSet":97',
            '"tagsSet":"a"',
            '"tagsSet":[1,true,"b",1.5]',
            '"tagsSet":["a",["b"],{"c":1}]',
            '"tagsSet":["a",,"b",]',
            '"tagsSet":[,"a"]',
            '"tagsSet":[\'a\',"b"]',
            '"classFilterMode":"true"',
            '"isClassFilterMode":true',
            '"class_filter_mode":true',
            '"subString":false',
            '"subString":12345678901234567890',
            '"SubString":"x"',
            '"subString":"a\\tb\\u001b"',
            '"expressionType":""',
            '"true":1,true:2,null:3',
            '"x":NaN',
            '"x":[1,undefined]',
            '"x":0x41',
        ),
        '{"topic":5,"subVersion":1}',
        '{"topic":"","subVersion":1}',
        '{"topic":"t" "subVersion":5}',
        "{topic:'t',subVersion:1,subString:t}",
        '{"sub_version":7,"topic":"t"}',
        '\ufeff{"topic":"t","subVersion":1}',
    ],
    "LockBatchBody": [
        *_queue(
            '"brokerName":"b","queueId":"3"',
            '"brokerName":"b"',
            '"brokerName":"b","queueId":3.7,"x":1',
            '"broker_name":"b","queueid":true',
            '"brokerName":"b","queueId":null',
            '"brokerName":"b","queueId":""',
            '"brokerName":"b","queueId":4294967299',
            '"brokerName":"b","queueId":"3.0"',
            '"brokerName":7,"queueId":"1,000"',
        ),
        '{"consumerGroup":"g","clientId":"c"}',
        '{"consumerGroup":"g","clientId":"c","mqSet":[""]}',
        '{"consumerGroup":"g","clientId":"c","mqSet":"b"}',
    ],
    "ResetOffsetBody": [
        '{"offsetTable":{{"topic":"t","brokerName":"b","queueId":"3"}:"17"}}',
        "{\"offsetTable\":{{topic:'t',brokerName:'b',queueId:3}:17.5}}",
        '{"offsetTable":{"{\\"topic\\":\\"t\\",\\"brokerName\\":\\"b\\",\\"queueId\\":3}":17}}',
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t","x":1}:5}}',
        '{"offsetTable":{{"broker_name":"b","queueId":"3","topic":"t"}:5,}}',
        '{"offsetTable":{{"brokerName":"b","topic":"t"}:5}}',
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:""}}',
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:null}}',
        '{"offset_table":{{"brokerName":"b","queueId":3,"topic":"t"}:5}}',
        '{"offsetTable":[{"mq":{"topic":"t"}}]}',
        '{"offsetTable":{}}',
    ],
    "TopicRouteData": [
        '{"queueDatas":[{"brokerName":"b","readQueueNums":"4","writeQueueNums":4.0,"perm":true}],'
        '"brokerDatas":[{"cluster":"c","brokerName":"b","brokerAddrs":{0:"a"}}]}',
        '{"queueDatas":[{"brokerName":"b"}]}',
        "{}",
        *(
            '{"brokerDatas":[{"cluster":"c","brokerName":"b","brokerAddrs":{%s}}]}' % table  # noqa: UP031
            for table in (
                '"0":"a"',
                "'0':'a'",
                '"x":"a"',
                '"0":17',
                '"+1":"x","2,000":"y"',
                '"0":null,"1":"x"',
            )
        ),
        '{"filterServerTable":{"a":["x"],\'c\':[1]}}',
        '{"filterServerTable":{d:"e"}}',
    ],
    "TopicConfig": [
        '{"topicName":"t","readQueueNums":"8","topicFilterType":1,"order":"1"}',
        '{"topicName":"t","topicFilterType":"MULTI_TAG","attributes":{"a":1,"b":true}}',
        '{"topicName":"t","topicFilterType":"nonsense","readQueueNums":null,"order":null}',
        '{"topicName":"t","topicFilterType":2}',
        '{"topicName":"t","perm":"6","topicSysFlag":""}',
    ],
    "SubscriptionGroupConfig": [
        '{"groupName":"g","consumeEnable":"false","retryQueueNums":"2","brokerId":"0","retryMaxTimes":"16.0"}',
        '{"groupName":"g","consumeEnable":null,"retryQueueNums":null}',
        '{"groupName":"g","consumeEnable":0,"consumeFromMinEnable":"N","attributes":{"+a":"b"}}',
    ],
}


def ask_java() -> list[dict[str, str | None]]:
    """What fastjson makes of each text: `java` is null where it refuses. Raises apache.Missing."""
    target = apache.prepare(apache.NEW)
    asked = [(kind, text) for kind, texts in TEXTS.items() for text in texts]
    done = subprocess.run(
        ["java", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", "Bodies"],
        input="".join(f"{CLASSES[kind]}\t{text}\n" for kind, text in asked),
        capture_output=True,
        encoding="utf-8",
        env=apache.java_environment(),
        timeout=120,
        check=True,
    )
    answers = done.stdout.splitlines()
    return [
        {"kind": kind, "text": text, "java": None if answer == "ERROR" else answer}
        for (kind, text), answer in zip(asked, answers, strict=True)
    ]


if __name__ == "__main__":
    for row in ask_java():
        print(json.dumps(row, ensure_ascii=False))
