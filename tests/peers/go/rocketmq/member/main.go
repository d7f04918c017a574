// A member of a consumer group for the bench, of rocketmq-client-go; its commands are told in bench/commands.py.
package main

import (
	"context"
	"listener"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const queuesPerBrokerMax = 1000

func main() {
	rlog.SetLogLevel("error")
	listener.Serve(start)
}

func start(joining *listener.Joining) func() {
	member, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(joining.Group),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{joining.Servers})),
		consumer.WithInstance(joining.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		panic(err)
	}
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			joining.Listen(number(message.Queue), message.QueueOffset)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := member.Subscribe(joining.Topic, consumer.MessageSelector{}, listen); err != nil {
		panic(err)
	}
	if err := member.Start(); err != nil {
		panic(err)
	}
	return func() {
		if err := member.Shutdown(); err != nil {
			panic(err)
		}
	}
}

// number is that of a queue among those of all brokers, by the last letter of the broker's name.
func number(queue *primitive.MessageQueue) int32 {
	broker := int32(queue.BrokerName[len(queue.BrokerName)-1] - 'a')
	return broker*queuesPerBrokerMax + int32(queue.QueueId)
}
