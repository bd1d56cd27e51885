package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

func init() {
	add("transactions: messages come when they are committed", transactional)
	add("transactions: consume, transform, produce", transforming)
	add("transactions: what is in one is in no other", conflicting)
	add("transactions: chunked messages", transactionalChunks)
}

func (w *world) transactional() pulsar.Client {
	quiet := logrus.New()
	quiet.SetLevel(logrus.FatalLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: w.broker, Logger: log.NewLoggerWithLogrus(quiet), OperationTimeout: deadline, EnableTransaction: true,
	})
	check(err)
	return client
}

func begin(client pulsar.Client) pulsar.Transaction {
	txn, err := client.NewTransaction(time.Minute)
	check(err)
	return txn
}

func within(act func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	check(act(ctx))
}

// postIn publishes texts in a transaction, in batches or one by one.
func postIn(producer pulsar.Producer, txn pulsar.Transaction, first, end int) {
	failed := make(chan error, end-first)
	for i := first; i < end; i++ {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(fmt.Sprint("m", i)), Transaction: txn,
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { failed <- err })
	}
	check(producer.Flush())
	for range end - first {
		check(<-failed)
	}
}

func transactional(w *world) {
	client := w.transactional()
	defer client.Close()
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	for _, single := range []bool{true, false} {
		producer, err := client.CreateProducer(pulsar.ProducerOptions{
			Topic: w.topic, DisableBatching: single, SendTimeout: -1,
		})
		check(err)
		txn := begin(client)
		postIn(producer, txn, 0, 10)
		nothingMore(consumer)
		within(txn.Commit)
		same(numbered(0, 10), take(consumer, 10))
		lost := begin(client)
		postIn(producer, lost, 0, 10)
		within(lost.Abort)
		nothingMore(consumer)
		producer.Close()
	}
}

func transforming(w *world) {
	client := w.transactional()
	defer client.Close()
	w.send("", 0, 20)
	out := w.topic + "-out"
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: out, SendTimeout: -1})
	check(err)
	defer producer.Close()
	source, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: w.topic, SubscriptionName: "s", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	check(err)
	defer source.Close()
	for done, round := 0, 0; done < 20; round++ {
		txn := begin(client)
		for range 5 {
			message := next(source)
			post(producer, &pulsar.ProducerMessage{Payload: message.Payload(), Transaction: txn})
			check(source.AckWithTxn(message, txn))
		}
		if round%2 == 0 {
			within(txn.Abort)
		} else {
			within(txn.Commit)
			done += 5
		}
	}
	nothingMore(source)
	sink := w.consumer(pulsar.ConsumerOptions{Topic: out})
	defer sink.Close()
	expected, found := numbered(0, 20), take(sink, 20)
	slices.Sort(expected)
	slices.Sort(found)
	same(expected, found)
	nothingMore(sink)
}

func conflicting(w *world) {
	client := w.transactional()
	defer client.Close()
	w.send("", 0, 1)
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: w.topic, SubscriptionName: "s", Type: pulsar.Shared, AckWithResponse: true,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	check(err)
	defer consumer.Close()
	message := next(consumer)
	one, two := begin(client), begin(client)
	check(consumer.AckWithTxn(message, one))
	err = consumer.AckWithTxn(message, two)
	expect(err != nil && strings.Contains(err.Error(), "Conflict"), "a conflict, found: %v", err)
	within(one.Commit)
	err = two.Commit(context.Background())
	expect(err != nil, "no commit after a failure")
	nothingMore(consumer)
	var known *pulsar.Error
	expect(!errors.As(one.Commit(context.Background()), &known) || known != nil, "an answer")
}

func transactionalChunks(w *world) {
	client := w.transactional()
	defer client.Close()
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{
		Topic: w.topic, DisableBatching: true, EnableChunking: true, SendTimeout: -1,
	})
	check(err)
	defer producer.Close()
	large := make([]byte, 12<<20)
	txn := begin(client)
	post(producer, &pulsar.ProducerMessage{Payload: large, Transaction: txn})
	nothingMore(consumer)
	within(txn.Commit)
	same(len(large), len(next(consumer).Payload()))
}
