// One member of a consumer group, of franz-go; the arguments, commands and events are told in members.py.
package main

import (
	"context"
	"strings"
	"time"

	"peers/lines"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func tell(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		lines.Partitions(event, partitions)
	}
}

func main() {
	options := lines.Read()
	settings := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(options["bootstrap"], ",")...),
		kgo.ClientID(options["client"]),
		kgo.ConsumerGroup(options["group"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), // as in Java: an application that stalls keeps its partitions
		kgo.MetadataMaxAge(options.Duration("refresh_ms")),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.RebalanceTimeout(options.Duration("poll_ms")),
		kgo.OnPartitionsAssigned(tell("assigned")),
		kgo.OnPartitionsRevoked(tell("revoked")),
		kgo.OnPartitionsLost(tell("lost")),
	}
	if options["assignor"] == "uniform" { // the servers' own: KIP-848
		settings = append(settings, kgo.ServerSideBalancer())
	} else {
		settings = append(settings,
			kgo.Balancers(balancers[options["assignor"]]),
			kgo.SessionTimeout(options.Duration("session_ms")),
			kgo.HeartbeatInterval(options.Duration("heartbeat_ms")))
	}
	if options["instance"] != "" {
		settings = append(settings, kgo.InstanceID(options["instance"]))
	}
	if pattern := options["pattern"]; pattern != "" {
		settings = append(settings, kgo.ConsumeRegex(), kgo.ConsumeTopics(pattern))
	} else {
		settings = append(settings, kgo.ConsumeTopics(strings.Split(options["topics"], ",")...))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		panic(err)
	}

	commands := lines.Commands()
	for leaving := false; !leaving; {
		consume(client)
		select {
		case command := <-commands:
			if leaving = command == "leave"; !leaving {
				<-commands // until it is told to go on
			}
		default:
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	lines.Emit("left", nil)
}

func consume(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fetches := client.PollFetches(ctx)
	for _, failed := range fetches.Errors() {
		if ctx.Err() == nil {
			lines.Error(failed.Err)
		}
	}
	fetches.EachRecord(func(record *kgo.Record) {
		lines.Record(record.Topic, record.Partition, record.Offset, record.Value)
	})
	if fetches.NumRecords() > 0 {
		if err := client.CommitRecords(context.Background(), fetches.Records()...); err != nil {
			lines.Error(err)
		} else {
			lines.Emit("committed", nil)
		}
	}
}
