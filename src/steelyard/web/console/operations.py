"""The operations of the API as data: what the router serves, and what the description describes."""

from __future__ import annotations

from typing import Literal

import msgspec

from steelyard.web.console import answers, questions

PREFIX = "/api/v1"

Method = Literal["GET", "POST", "DELETE"]


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One path and method.

    `name`: of the method that serves it, and its `operationId`. `path`: below PREFIX, its
    parameters in braces. `question`: the structure of its parameters. `answer`: the structure of a
    successful answer; None for a stream of events. `body`: the structure of the request's body.
    """

    name: str
    path: str
    summary: str
    answer: type[answers.ApiAnswer] | None
    method: Method = "GET"
    question: type[questions.Question] = questions.NoQuestion
    body: type[msgspec.Struct] | None = None

    @property
    def is_change(self) -> bool:
        """Return whether it may change the cluster, which `--allow-changes` must allow."""
        return self.method != "GET"

    @property
    def errors(self) -> tuple[int, ...]:
        """Return the statuses of its failures, sorted."""
        found = {400, 403, 421, 502, 504}
        if "{" in self.path or self.question is not questions.NoQuestion:
            found.add(404)
        if self.is_change:
            found |= {404, 409, 413, 415}
        if self.answer is None:
            found.add(503)
        return tuple(sorted(found))


GROUP = "/groups/{dialect}/{group}"
TOPIC = "/topics/{dialect}/{topic}"

OPERATIONS = (
    ApiOperation(
        name="cluster",
        path="/cluster",
        summary="The servers of the cluster, and how they are",
        answer=answers.ClusterView,
    ),
    ApiOperation(
        name="groups",
        path="/groups",
        summary="All consumer groups",
        answer=answers.GroupsAnswer,
    ),
    ApiOperation(
        name="group",
        path=GROUP,
        summary="A group now: its members, who reads which queue, and the rebalance that it is in",
        question=questions.GroupQuestion,
        answer=answers.GroupPicture,
    ),
    ApiOperation(
        name="rebalances",
        path=f"{GROUP}/rebalances",
        summary="What the latest rebalances of a group cost, and which members flap",
        question=questions.RebalancesQuestion,
        answer=answers.RebalancesAnswer,
    ),
    ApiOperation(
        name="lag",
        path=f"{GROUP}/lag",
        summary="The lag of a group over time, since the console was started",
        question=questions.LagQuestion,
        answer=answers.LagHistory,
    ),
    ApiOperation(
        name="doctor",
        path=f"{GROUP}/doctor",
        summary="What keeps a group from working well, and what to do",
        question=questions.GroupQuestion,
        answer=answers.FindingsAnswer,
    ),
    ApiOperation(
        name="what_if",
        path=f"{GROUP}/what-if",
        summary="How strategies would divide a group's queues among a number of members",
        question=questions.WhatIfQuestion,
        answer=answers.WhatIf,
    ),
    ApiOperation(
        name="reset_offsets",
        method="POST",
        path=f"{GROUP}/reset-offsets",
        summary="Make a group continue elsewhere in a topic",
        question=questions.GroupQuestion,
        body=questions.ResetOffsets,
        answer=answers.ResetResult,
    ),
    ApiOperation(
        name="topics",
        path="/topics",
        summary="All topics",
        answer=answers.TopicsAnswer,
    ),
    ApiOperation(
        name="create_topic",
        method="POST",
        path="/topics",
        summary="Create a topic",
        body=questions.CreateTopic,
        answer=answers.Done,
    ),
    ApiOperation(
        name="topic",
        path=TOPIC,
        summary="A topic: its queues, its groups and its settings",
        question=questions.TopicQuestion,
        answer=answers.TopicPicture,
    ),
    ApiOperation(
        name="delete_topic",
        method="DELETE",
        path=TOPIC,
        summary="Delete a topic and its messages",
        question=questions.TopicQuestion,
        answer=answers.Done,
    ),
    ApiOperation(
        name="messages",
        path="/messages",
        summary="Messages of a topic by queue and offset, time, key or tag",
        question=questions.MessagesQuestion,
        answer=answers.MessagesAnswer,
    ),
    ApiOperation(
        name="events",
        path="/events",
        summary="Changes as they happen, as server-sent events",
        question=questions.EventsQuestion,
        answer=None,
    ),
)
"""All operations."""
