// What an application does with sarama once it has logged in: it makes a topic, writes to it with idempotence and
// all acknowledgements, and reads it in a consumer group. The options are KEY=VALUE: bootstrap, mechanism, user,
// password, topic, and with TLS ca. It tells the record, what the group has committed, and that it has left.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"peers/lines"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// login is the client's side of SCRAM, which sarama leaves to its users.
type login struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (l *login) Begin(user, password, authzID string) error {
	client, err := l.hash.NewClient(user, password, authzID)
	if err == nil {
		l.ClientConversation = client.NewConversation()
	}
	return err
}

var hashes = map[string]scram.HashGeneratorFcn{
	sarama.SASLTypeSCRAMSHA256: scram.SHA256,
	sarama.SASLTypeSCRAMSHA512: scram.SHA512,
}

// reader tells one record, commits it and ends the session.
type reader struct {
	leave context.CancelFunc
}

func (r reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r reader) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		lines.Record(message.Topic, message.Partition, message.Offset, message.Value)
		session.MarkMessage(message, "")
		session.Commit()
		r.leave()
	}
	return nil
}

func main() {
	if err := exchange(lines.Read()); err != nil {
		lines.Error(err)
		os.Exit(1)
	}
	lines.Emit("left", nil)
}

func exchange(options lines.Options) error {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1 // as sarama wants it for idempotence
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLMechanism(options["mechanism"])
	config.Net.SASL.User = options["user"]
	config.Net.SASL.Password = options["password"]
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
		return &login{hash: hashes[options["mechanism"]]}
	}
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	if options["ca"] != "" {
		trusted, err := os.ReadFile(options["ca"])
		if err != nil {
			return err
		}
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = &tls.Config{RootCAs: x509.NewCertPool()}
		config.Net.TLS.Config.RootCAs.AppendCertsFromPEM(trusted)
	}
	client, err := sarama.NewClient(strings.Split(options["bootstrap"], ","), config)
	if err != nil {
		return err
	}
	defer client.Close()

	topic := options["topic"]
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}

	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("one")}
	if _, _, err := producer.SendMessage(message); err != nil {
		return err
	}
	if err := producer.Close(); err != nil {
		return err
	}

	group, err := sarama.NewConsumerGroupFromClient(topic, client)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, reader{leave}); err != nil {
			return err
		}
	}
	if err := group.Close(); err != nil {
		return err
	}

	offsets, err := admin.ListConsumerGroupOffsets(topic, map[string][]int32{topic: {0}})
	if err != nil {
		return err
	}
	lines.Emit("committed", map[string]any{"offset": offsets.GetBlock(topic, 0).Offset})
	return nil
}
