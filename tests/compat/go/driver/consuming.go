package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	add("a chunked message is sought whole", soughtChunks)
	add("without a receiver queue messages come one by one", withoutQueue)
	add("a reader of an empty topic has nothing until something is sent", emptyTopic)
	add("keys choose their partitions", keysAndPartitions)
	add("a subscription that asks to be replicated, with properties", replicated)
	add("the name of a dead letter tells where it comes from", namedDeadLetters)
	add("refused messages come again after a time of one's own", backoff)
	add("a seek right after acknowledgements loses nothing", seekAtOnce)
}

func soughtChunks(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{StartMessageIDInclusive: true, MaxPendingChunkedMessage: 5})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{
		DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 1 << 18,
	})
	defer producer.Close()
	var sent [][]byte
	for i := range 3 {
		large := make([]byte, 1<<20)
		rand.New(rand.NewSource(int64(i))).Read(large)
		post(producer, &pulsar.ProducerMessage{Payload: large})
		sent = append(sent, large)
	}
	var ids []pulsar.MessageID
	for _, large := range sent {
		message := next(consumer)
		expect(bytes.Equal(large, message.Payload()), "the large messages in order")
		ids = append(ids, message.ID())
		check(consumer.Ack(message))
	}
	check(consumer.Seek(ids[1]))
	for _, large := range sent[1:] {
		expect(bytes.Equal(large, next(consumer).Payload()), "the large messages from the second one on")
	}
}

func withoutQueue(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, EnableZeroQueueConsumer: true})
	defer consumer.Close()
	other := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	w.send("", 0, 3)
	// The first one has asked for nothing yet: all of them are the other one's.
	same(numbered(0, 3), take(other, 3))
	other.Close()
	w.send("", 3, 6)
	same(numbered(3, 6), take(consumer, 3))
}

func emptyTopic(w *world) {
	reader, err := w.client.CreateReader(pulsar.ReaderOptions{
		Topic: w.topic, StartMessageID: pulsar.EarliestMessageID(),
	})
	check(err)
	defer reader.Close()
	expect(!reader.HasNext(), "nothing in an empty topic")
	w.send("", 0, 2)
	for i := range 2 {
		expect(reader.HasNext(), "what was sent")
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		message, err := reader.Next(ctx)
		cancel()
		check(err)
		same(fmt.Sprint("m", i), string(message.Payload()))
	}
	expect(!reader.HasNext(), "no more than what was sent")
}

func keysAndPartitions(w *world) {
	w.admin("PUT", strings.Replace(w.topic, "://", "/", 1)+"/partitions", "3")
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	for i := range 60 {
		post(producer, &pulsar.ProducerMessage{Key: fmt.Sprint("key", i%20), Payload: []byte("x")})
	}
	places, used := map[string]int32{}, map[int32]bool{}
	for range 60 {
		message := next(consumer)
		check(consumer.Ack(message))
		place := message.ID().PartitionIdx()
		if before, known := places[message.Key()]; known {
			same(before, place)
		}
		places[message.Key()], used[place] = place, true
	}
	same(20, len(places))
	same(3, len(used))
}

func replicated(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{
		ReplicateSubscriptionState: true, SubscriptionProperties: map[string]string{"team": "blue"},
	})
	defer consumer.Close()
	w.send("", 0, 3)
	same(numbered(0, 3), take(consumer, 3))
}

func namedDeadLetters(w *world) {
	w.buried(100*time.Millisecond, func(letters pulsar.Consumer) {
		message := next(letters)
		name := message.ProducerName()
		expect(strings.HasPrefix(name, w.topic+"-s-") && strings.HasSuffix(name, "-DLQ"), "a name of the topic, not %s", name)
		same("m0", string(message.Payload()))
	})
}

type steps struct{}

func (steps) Next(count uint32) time.Duration { return time.Duration(count+1) * 100 * time.Millisecond }

func backoff(w *world) {
	// By default the client rounds the time down to 256 ms, which can take nearly all of the delay away.
	toTheMillisecond := int64(0)
	consumer := w.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackBackoffPolicy: steps{}, NackPrecisionBit: &toTheMillisecond,
	})
	defer consumer.Close()
	w.send("", 0, 1)
	for round := range 3 {
		message := next(consumer)
		same(round, message.RedeliveryCount())
		start := time.Now()
		consumer.Nack(message)
		if round == 2 {
			again := next(consumer)
			expect(time.Since(start) >= 299*time.Millisecond, "a longer time for what was refused often")
			check(consumer.Ack(again))
		}
	}
}

func seekAtOnce(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{AckWithResponse: true, StartMessageIDInclusive: true})
	defer consumer.Close()
	first := w.send("", 0, 20)[0]
	for range 10 {
		take(consumer, 20)
		check(consumer.Seek(first))
	}
	same(numbered(0, 20), take(consumer, 20))
}
