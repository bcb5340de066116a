// sarama
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"ottla/compatibility/loop"
)

const limit = 60 * time.Second

func config() *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.V3_6_0_0
	made.Metadata.RefreshFrequency = time.Second
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	made.Producer.RequiredAcks = sarama.WaitForAll
	made.Producer.Retry.Max = 30
	made.Producer.Retry.Backoff = 200 * time.Millisecond
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Net.TLS.Config = loop.TLS()
	made.Net.TLS.Enable = made.Net.TLS.Config != nil
	if login := loop.SASL(); login != nil { // SCRAM needs a library that sarama does not bring
		made.Net.SASL.Enable = true
		made.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
		made.Net.SASL.User, made.Net.SASL.Password = login.User, login.Password
	}
	return made
}

func messages(topic string, found []loop.Record) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, len(found))
	for i, each := range found {
		message := &sarama.ProducerMessage{Topic: topic, Partition: each.Partition}
		if each.Key != nil {
			message.Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			message.Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value})
		}
		if each.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		made[i] = message
	}
	return made
}

func decoded(message *sarama.ConsumerMessage) loop.Record {
	timestamp := message.Timestamp.UnixMilli()
	found := loop.Record{
		Key: message.Key, Value: message.Value, Headers: []loop.Header{}, Timestamp: &timestamp,
		Partition: message.Partition,
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, loop.Header{Name: string(header.Key), Value: header.Value})
	}
	return found
}

func addresses(request loop.Request) []string { return strings.Split(request.Bootstrap, ",") }

func produce(request loop.Request) (map[string]any, error) {
	settings := config()
	codecs := map[string]sarama.CompressionCodec{
		"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	settings.Producer.Compression = codecs[request.Codec]
	switch request.Acks {
	case "0":
		settings.Producer.RequiredAcks = sarama.NoResponse
	case "1":
		settings.Producer.RequiredAcks = sarama.WaitForLocal
	}
	if request.Idempotent {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(addresses(request), settings)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return nil, producer.SendMessages(messages(request.Topic, request.Records))
}

func read(request loop.Request) (map[string]any, error) {
	settings := config()
	if request.Committed {
		settings.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(addresses(request), settings)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := make(chan *sarama.ConsumerMessage)
	for partition := range request.Partitions {
		part, err := consumer.ConsumePartition(request.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go func() {
			for message := range part.Messages() {
				found <- message
			}
		}()
	}
	var records []loop.Record
	deadline := time.After(limit)
	for len(records) < request.Count {
		select {
		case message := <-found:
			records = append(records, decoded(message))
		case <-deadline:
			return nil, fmt.Errorf("%d of %d records", len(records), request.Count)
		}
	}
	go func() {
		for range found {
		}
	}()
	return map[string]any{"records": records}, nil
}

// member takes `count` messages as a member of a group and runs `onEnd` before it leaves.
type member struct {
	count int
	lock  sync.Mutex
	found []*sarama.ConsumerMessage
	onEnd func(sarama.ConsumerGroupSession, []*sarama.ConsumerMessage) error
	err   error
	done  chan struct{}
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			m.lock.Lock()
			if len(m.found) < m.count {
				m.found = append(m.found, message)
				session.MarkMessage(message, "")
				if len(m.found) == m.count {
					m.err = m.onEnd(session, m.found)
					close(m.done)
				}
			}
			m.lock.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(
	request loop.Request, topic string, onEnd func(sarama.ConsumerGroupSession, []*sarama.ConsumerMessage) error,
) ([]*sarama.ConsumerMessage, error) {
	settings := config()
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	group, err := sarama.NewConsumerGroup(addresses(request), request.Group, settings)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	made := &member{count: request.Count, onEnd: onEnd, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, made); err != nil {
				failed <- err
				return
			}
		}
	}()
	select {
	case <-made.done:
		return made.found, made.err
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, fmt.Errorf("%d of %d records", len(made.found), request.Count)
	}
}

func group(request loop.Request) (map[string]any, error) {
	if request.Protocol == "consumer" {
		return nil, loop.Unsupported("the client has the classic protocol only")
	}
	found, err := consume(request, request.Topic, func(session sarama.ConsumerGroupSession, _ []*sarama.ConsumerMessage) error {
		session.Commit()
		return nil
	})
	records := make([]loop.Record, len(found))
	for i, message := range found {
		records[i] = decoded(message)
	}
	return map[string]any{"records": records}, err
}

func transactional(request loop.Request) (sarama.SyncProducer, error) {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.Transaction.ID = request.ID
	settings.Producer.Transaction.Retry.Max = 100
	settings.Net.MaxOpenRequests = 1
	return sarama.NewSyncProducer(addresses(request), settings)
}

func end(producer sarama.SyncProducer, commit bool) error {
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func send(producer sarama.SyncProducer, request loop.Request) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	return producer.SendMessages(messages(request.Topic, request.Records))
}

func transact(request loop.Request) (map[string]any, error) {
	producer, err := transactional(request)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := send(producer, request); err != nil {
		return nil, err
	}
	return nil, end(producer, request.Commit)
}

func fence(request loop.Request) (map[string]any, error) {
	older, err := transactional(request)
	if err != nil {
		return nil, err
	}
	defer older.Close()
	if err := send(older, request); err != nil {
		return nil, err
	}
	newer, err := transactional(request)
	if err != nil {
		return nil, err
	}
	defer newer.Close()
	if err := send(newer, request); err != nil {
		return nil, err
	}
	if err := newer.CommitTxn(); err != nil {
		return nil, err
	}
	err = older.CommitTxn()
	isFenced := errors.Is(err, sarama.ErrProducerFenced) || errors.Is(err, sarama.ErrInvalidProducerEpoch) ||
		older.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0
	return map[string]any{"fenced": err != nil && isFenced, "error": fmt.Sprint(err)}, nil
}

func copyOnce(request loop.Request) (map[string]any, error) {
	producer, err := transactional(request)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	_, err = consume(request, request.Source, func(_ sarama.ConsumerGroupSession, found []*sarama.ConsumerMessage) error {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		positions := map[int32]int64{}
		for _, message := range found {
			made := &sarama.ProducerMessage{
				Topic: request.Target, Partition: message.Partition, Key: sarama.ByteEncoder(message.Key),
				Value: sarama.ByteEncoder(message.Value),
			}
			if _, _, err := producer.SendMessage(made); err != nil {
				return err
			}
			positions[message.Partition] = message.Offset + 1
		}
		var offsets []*sarama.PartitionOffsetMetadata
		for partition, offset := range positions {
			offsets = append(offsets, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset})
		}
		all := map[string][]*sarama.PartitionOffsetMetadata{request.Source: offsets}
		if err := producer.AddOffsetsToTxn(all, request.Group); err != nil {
			return err
		}
		return end(producer, request.Commit)
	})
	return nil, err
}

func administer(request loop.Request, run func(sarama.ClusterAdmin) (map[string]any, error)) (map[string]any, error) {
	admin, err := sarama.NewClusterAdmin(addresses(request), config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return run(admin)
}

func pointers(config map[string]string) map[string]*string {
	found := map[string]*string{}
	for name, value := range config {
		found[name] = &value
	}
	return found
}

func main() {
	loop.Serve(map[string]loop.Operation{
		"produce": produce, "read": read, "group": group, "transact": transact, "fence": fence, "copy": copyOnce,
		"offset_at": func(request loop.Request) (map[string]any, error) {
			client, err := sarama.NewClient(addresses(request), config())
			if err != nil {
				return nil, err
			}
			defer client.Close()
			offset, err := client.GetOffset(request.Topic, request.Partition, request.Timestamp)
			return map[string]any{"offset": offset}, err
		},
		"create_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				detail := &sarama.TopicDetail{
					NumPartitions: request.Partitions, ReplicationFactor: request.Replicas,
					ConfigEntries: pointers(request.Config),
				}
				return nil, admin.CreateTopic(request.Topic, detail, false)
			})
		},
		"topic_config": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: request.Topic})
				config := map[string]any{}
				for _, each := range found {
					config[each.Name] = each.Value
				}
				return map[string]any{"config": config}, err
			})
		},
		"alter_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				changes := map[string]sarama.IncrementalAlterConfigsEntry{}
				for name, value := range pointers(request.Config) {
					changes[name] = sarama.IncrementalAlterConfigsEntry{
						Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value,
					}
				}
				return nil, admin.IncrementalAlterConfig(sarama.TopicResource, request.Topic, changes, false)
			})
		},
		"grow_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				return nil, admin.CreatePartitions(request.Topic, request.Partitions, nil, false)
			})
		},
		"delete_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				return nil, admin.DeleteTopic(request.Topic)
			})
		},
		"topics": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(admin sarama.ClusterAdmin) (map[string]any, error) {
				found, err := admin.ListTopics()
				names := []string{}
				for name := range found {
					names = append(names, name)
				}
				return map[string]any{"topics": names}, err
			})
		},
	})
}
