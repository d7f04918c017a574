// A member of a consumer group for the bench, of franz-go; its commands are told in bench/commands.py.
// The argument is its assignor, or `consumer` for KIP-848.
package main

import (
	"context"
	"listener"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func main() {
	listener.Serve(start)
}

func start(joining *listener.Joining) func() {
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(joining.Servers, ",")...),
		kgo.ClientID(joining.Name),
		kgo.ConsumerGroup(joining.Group),
		kgo.ConsumeTopics(joining.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.BlockRebalanceOnPoll(), // as in Java: what was polled is worked on before its partition goes
	}
	if balancer, is := balancers[os.Args[1]]; is {
		settings = append(settings, kgo.Balancers(balancer))
	} else {
		settings = append(settings, kgo.ServerSideBalancer())
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
				joining.Listen(record.Partition, record.Offset)
			})
			client.AllowRebalance()
		}
	}()
	return func() {
		stop()
		<-done
		client.CloseAllowingRebalance()
	}
}
