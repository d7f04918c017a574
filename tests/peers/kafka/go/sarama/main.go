// One member of a consumer group, of sarama; the arguments, commands and events are told in members.py.
package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"peers/lines"

	"github.com/IBM/sarama"
)

var strategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

// handler tells what a session brings; while it holds `busy` for writing, the application stalls.
type handler struct {
	busy sync.RWMutex
}

func (h *handler) Setup(session sarama.ConsumerGroupSession) error {
	lines.Partitions("assigned", session.Claims())
	return nil
}

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	lines.Partitions("revoked", session.Claims())
	return nil
}

func (h *handler) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		lines.Record(message.Topic, message.Partition, message.Offset, message.Value)
		session.MarkMessage(message, "")
		session.Commit()
		lines.Emit("committed", nil)
	}
	h.busy.RLock() // a stalled application does not let go of its claims
	defer h.busy.RUnlock()
	return nil
}

func main() {
	options := lines.Read()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.ClientID = options["client"]
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Return.Errors = true
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{
		strategies[options["assignor"]](),
	}
	config.Consumer.Group.Rebalance.Timeout = options.Duration("poll_ms")
	config.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = options.Duration("session_ms")
	config.Consumer.Group.Heartbeat.Interval = options.Duration("heartbeat_ms")
	config.Consumer.Group.InstanceId = options["instance"]
	config.Metadata.RefreshFrequency = options.Duration("refresh_ms")
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	group, err := sarama.NewConsumerGroup(
		strings.Split(options["bootstrap"], ","), options["group"], config)
	if err != nil {
		panic(err)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for err := range group.Errors() { // ends with the group: what it says comes before "left"
			lines.Error(err)
		}
	}()

	member := &handler{}
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		commands := lines.Commands()
		for command := range commands {
			if command == "leave" {
				leave()
				return
			}
			member.busy.Lock()
			<-commands // until it is told to go on
			member.busy.Unlock()
		}
	}()
	for ctx.Err() == nil {
		err := group.Consume(ctx, strings.Split(options["topics"], ","), member)
		if err != nil && !errors.Is(err, context.Canceled) {
			lines.Error(err)
		}
	}
	if err := group.Close(); err != nil {
		lines.Error(err)
	}
	<-told
	lines.Emit("left", nil)
}
