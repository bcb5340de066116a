// franz-go
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/compatibility/loop"
)

const limit = 60 * time.Second

func common(request loop.Request, options ...kgo.Opt) []kgo.Opt {
	made := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(request.Bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if config := loop.TLS(); config != nil {
		made = append(made, kgo.DialTLSConfig(config))
	}
	if login := loop.SASL(); login != nil {
		if login.Mechanism == "PLAIN" {
			made = append(made, kgo.SASL(plain.Auth{User: login.User, Pass: login.Password}.AsMechanism()))
		} else {
			made = append(made, kgo.SASL(scram.Auth{User: login.User, Pass: login.Password}.AsSha512Mechanism()))
		}
	}
	return append(made, options...)
}

func client(request loop.Request, options ...kgo.Opt) (*kgo.Client, error) {
	options = append(options, kgo.MetadataMinAge(200*time.Millisecond))
	return kgo.NewClient(common(request, options...)...)
}

func records(topic string, found []loop.Record) []*kgo.Record {
	made := make([]*kgo.Record, len(found))
	for i, each := range found {
		record := &kgo.Record{Topic: topic, Key: each.Key, Value: each.Value, Partition: each.Partition}
		for _, header := range each.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
		if each.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*each.Timestamp)
		}
		made[i] = record
	}
	return made
}

func decoded(record *kgo.Record) loop.Record {
	timestamp := record.Timestamp.UnixMilli()
	found := loop.Record{
		Key: record.Key, Value: record.Value, Headers: []loop.Header{}, Timestamp: &timestamp, Partition: record.Partition,
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, loop.Header{Name: header.Key, Value: header.Value})
	}
	return found
}

func poll(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollRecords(ctx, count-len(found))
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func answer(found []*kgo.Record) map[string]any {
	list := make([]loop.Record, len(found))
	for i, record := range found {
		list[i] = decoded(record)
	}
	return map[string]any{"records": list}
}

func produce(request loop.Request) (map[string]any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"": kgo.AllISRAcks(), "all": kgo.AllISRAcks(), "1": kgo.LeaderAck(), "0": kgo.NoAck()}
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[request.Codec]), kgo.RequiredAcks(acks[request.Acks]),
	}
	if !request.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	producer, err := client(request, options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return nil, producer.ProduceSync(ctx, records(request.Topic, request.Records)...).FirstErr()
}

func read(request loop.Request) (map[string]any, error) {
	offsets := map[int32]kgo.Offset{}
	for partition := range request.Partitions {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	isolation := kgo.ReadUncommitted()
	if request.Committed {
		isolation = kgo.ReadCommitted()
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	consumer, err := client(
		request,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{request.Topic: offsets}),
		kgo.FetchIsolationLevel(isolation),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found, err := poll(ctx, consumer, request.Count)
	return answer(found), err
}

func group(request loop.Request) (map[string]any, error) {
	ctx := context.Background()
	if request.Protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	consumer, err := client(
		request,
		kgo.WithContext(ctx),
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found, err := poll(ctx, consumer, request.Count)
	if err != nil {
		return nil, err
	}
	return answer(found), consumer.CommitRecords(ctx, found...)
}

func end(ctx context.Context, producer *kgo.Client, commit bool) error {
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	return producer.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func transact(request loop.Request) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	producer, err := client(request, kgo.TransactionalID(request.ID))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	return nil, send(ctx, producer, request)
}

func send(ctx context.Context, producer *kgo.Client, request loop.Request) error {
	if err := producer.BeginTransaction(); err != nil {
		return err
	}
	if err := producer.ProduceSync(ctx, records(request.Topic, request.Records)...).FirstErr(); err != nil {
		return err
	}
	return end(ctx, producer, request.Commit)
}

func fence(request loop.Request) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	older, err := client(request, kgo.TransactionalID(request.ID))
	if err != nil {
		return nil, err
	}
	defer older.Close()
	if err := older.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := older.ProduceSync(ctx, records(request.Topic, request.Records)...).FirstErr(); err != nil {
		return nil, err
	}
	newer, err := client(request, kgo.TransactionalID(request.ID))
	if err != nil {
		return nil, err
	}
	defer newer.Close()
	request.Commit = true
	if err := send(ctx, newer, request); err != nil {
		return nil, err
	}
	err = end(ctx, older, true)
	isFenced := errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
	return map[string]any{"fenced": isFenced, "error": fmt.Sprint(err)}, nil
}

func copyOnce(request loop.Request) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(common(request,
		kgo.TransactionalID(request.ID),
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	var found []*kgo.Record
	for len(found) < request.Count {
		fetches := session.PollRecords(ctx, request.Count-len(found))
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), request.Count, err)
		}
		found = append(found, fetches.Records()...)
	}
	if err := session.Begin(); err != nil {
		return nil, err
	}
	for _, record := range found {
		made := &kgo.Record{Topic: request.Target, Key: record.Key, Value: record.Value, Partition: record.Partition}
		session.Produce(ctx, made, nil)
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(request.Commit))
	if err == nil && committed != request.Commit {
		err = fmt.Errorf("committed: %t", committed)
	}
	return nil, err
}

func administer(request loop.Request, run func(context.Context, *kadm.Client) (map[string]any, error)) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	made, err := client(request)
	if err != nil {
		return nil, err
	}
	defer made.Close()
	return run(ctx, kadm.NewClient(made))
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
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				found, err := admin.ListOffsetsAfterMilli(ctx, request.Timestamp, request.Topic)
				if err != nil {
					return nil, err
				}
				offset, _ := found.Lookup(request.Topic, request.Partition)
				return map[string]any{"offset": offset.Offset}, offset.Err
			})
		},
		"create_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				_, err := admin.CreateTopic(ctx, request.Partitions, request.Replicas, pointers(request.Config), request.Topic)
				return nil, err
			})
		},
		"topic_config": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				found, err := admin.DescribeTopicConfigs(ctx, request.Topic)
				if err != nil {
					return nil, err
				}
				config := map[string]any{}
				for _, each := range found[0].Configs {
					config[each.Key] = each.Value
				}
				return map[string]any{"config": config}, found[0].Err
			})
		},
		"alter_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				var changes []kadm.AlterConfig
				for name, value := range pointers(request.Config) {
					changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
				}
				found, err := admin.AlterTopicConfigs(ctx, changes, request.Topic)
				if err == nil {
					err = found[0].Err
				}
				return nil, err
			})
		},
		"grow_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				found, err := admin.UpdatePartitions(ctx, int(request.Partitions), request.Topic)
				if err == nil {
					err = found.Error()
				}
				return nil, err
			})
		},
		"delete_topic": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				_, err := admin.DeleteTopic(ctx, request.Topic)
				return nil, err
			})
		},
		"topics": func(request loop.Request) (map[string]any, error) {
			return administer(request, func(ctx context.Context, admin *kadm.Client) (map[string]any, error) {
				found, err := admin.ListTopics(ctx)
				return map[string]any{"topics": found.Names()}, err
			})
		},
	})
}
