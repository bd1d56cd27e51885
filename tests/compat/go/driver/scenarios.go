package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	add("messages arrive whole, with every compression", compressed)
	add("chunked messages are put together", chunks)
	add("an exclusive subscription has one consumer", exclusive)
	add("failover passes on", failover)
	add("a shared subscription divides the messages", shared)
	add("Key_Shared keeps the order of each key", keyShared)
	add("key-based batches", keyBatches)
	add("refused messages come again", refused)
	add("what was refused too often goes to the dead letter topic", deadLetters)
	add("retries pass through the retry topic", retries)
	add("delayed messages come when they are due", delayed)
	add("acknowledgements of parts of a batch, answered", parts)
	add("cumulative acknowledgements", cumulative)
	add("seek to a message and to a time", seek)
	add("readers begin where they are told", readers)
	add("a table view follows its topic", tableView)
	add("schemas", schemas)
	add("partitions, several topics and patterns", several)
	add("exclusive producers", exclusiveProducers)
	add("what is sent twice counts once", deduplication)
	add("survives an unload", unload)
}

// text is never empty: this client reads an empty text that it compressed with LZ4 as one zero byte.
func text(i int) string { return strings.Repeat("text ", i+1) }

func compressed(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	for _, compression := range []pulsar.CompressionType{
		pulsar.NoCompression, pulsar.LZ4, pulsar.ZLib, pulsar.ZSTD, pulsar.SNAPPY,
	} {
		for _, single := range []bool{true, false} {
			producer := w.producer(pulsar.ProducerOptions{CompressionType: compression, DisableBatching: single})
			for i := range 20 {
				producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
					Payload: []byte(text(i)), Key: fmt.Sprint("k", i),
					Properties: map[string]string{"n": fmt.Sprint(i)}, EventTime: time.UnixMilli(int64(1000 + i)),
				}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {})
			}
			check(producer.Flush())
			for i := range 20 {
				message := next(consumer)
				same(text(i), string(message.Payload()))
				same(fmt.Sprint("k", i), message.Key())
				same(fmt.Sprint(i), message.Properties()["n"])
				same(1000+i, message.EventTime().UnixMilli())
				check(consumer.Ack(message))
			}
			producer.Close()
		}
	}
	nothingMore(consumer)
}

func chunks(w *world) {
	large := make([]byte, 12<<20)
	rand.New(rand.NewSource(1)).Read(large)
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true, EnableChunking: true})
	defer producer.Close()
	post(producer, &pulsar.ProducerMessage{Payload: large})
	message := next(consumer)
	expect(bytes.Equal(large, message.Payload()), "the large message")
	check(consumer.Ack(message))
}

func exclusive(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	_, err := w.client.Subscribe(pulsar.ConsumerOptions{Topic: w.topic, SubscriptionName: "s"})
	expect(err != nil && strings.Contains(err.Error(), "ConsumerBusy"), "ConsumerBusy, found: %v", err)
	w.send("", 0, 3)
	same(numbered(0, 3), take(consumer, 3))
}

func failover(w *world) {
	first := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "a"})
	second := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "b"})
	defer second.Close()
	w.send("", 0, 4)
	same(numbered(0, 2), take(first, 2))
	nothingMore(second)
	// Acknowledgements wait in the client for a moment; closing sends them.
	first.Close()
	same(numbered(2, 4), take(second, 2))
}

func shared(w *world) {
	one := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 5})
	other := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared, ReceiverQueueSize: 5})
	defer other.Close()
	w.send("", 0, 10)
	texts := take(one, 3)
	next(one)
	one.Close()
	texts = append(texts, take(other, 7)...)
	slices.Sort(texts)
	same(numbered(0, 10), texts)
}

func keyShared(w *world) {
	consumers := []pulsar.Consumer{
		w.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared}),
		w.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared}),
	}
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	for i := range 200 {
		post(producer, &pulsar.ProducerMessage{Key: fmt.Sprint("key", i%50), Payload: []byte(fmt.Sprint(i))})
	}
	owners := byKey(consumers, 200)
	same(50, len(owners))
}

func keyBatches(w *world) {
	consumers := []pulsar.Consumer{
		w.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared}),
		w.consumer(pulsar.ConsumerOptions{Type: pulsar.KeyShared}),
	}
	producer := w.producer(pulsar.ProducerOptions{BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	defer producer.Close()
	for i := range 200 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Key: fmt.Sprint("key", i%50), Payload: []byte(fmt.Sprint(i)),
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {})
	}
	check(producer.Flush())
	same(50, len(byKey(consumers, 200)))
}

// byKey receives so many messages and checks that each key has one consumer and its order.
func byKey(consumers []pulsar.Consumer, count int) map[string]int {
	owners := map[string]int{}
	last := map[string]int{}
	for range count {
		var message pulsar.Message
		var from int
		select {
		case received := <-consumers[0].Chan():
			message, from = received.Message, 0
		case received := <-consumers[1].Chan():
			message, from = received.Message, 1
		case <-time.After(deadline):
			panic(fmt.Errorf("expected: %d messages", count))
		}
		check(consumers[from].Ack(message))
		key := message.Key()
		var number int
		fmt.Sscan(string(message.Payload()), &number)
		if owner, known := owners[key]; known {
			expect(owner == from, "one consumer for %s", key)
			expect(last[key] < number, "%s in order", key)
		}
		owners[key], last[key] = from, number
	}
	for _, consumer := range consumers {
		consumer.Close()
	}
	return owners
}

func refused(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackRedeliveryDelay: 200 * time.Millisecond,
	})
	defer consumer.Close()
	w.send("", 0, 1)
	for round := range 3 {
		message := next(consumer)
		same(round, message.RedeliveryCount())
		consumer.Nack(message)
	}
}

func deadLetters(w *world) {
	w.buried(200*time.Millisecond, func(letters pulsar.Consumer) { same(numbered(0, 1), take(letters, 1)) })
}

func retries(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, RetryEnable: true, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 5},
	})
	defer consumer.Close()
	w.send("", 0, 1)
	for round := range 2 {
		message := next(consumer)
		expect(strings.HasSuffix(message.Topic(), "-RETRY") == (round > 0), "a retry from its topic")
		consumer.ReconsumeLater(message, 200*time.Millisecond)
	}
	same(numbered(0, 1), take(consumer, 1))
}

func delayed(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{Type: pulsar.Shared})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	start := time.Now()
	due := map[string]time.Duration{"later": time.Second, "soon": 500 * time.Millisecond, "now": 0}
	// On a busy machine any of them may be due before the next one is sent: no order is sure.
	post(producer, &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: due["later"]})
	post(producer, &pulsar.ProducerMessage{Payload: []byte("soon"), DeliverAt: start.Add(due["soon"])})
	post(producer, &pulsar.ProducerMessage{Payload: []byte("now")})
	found := map[string]bool{}
	for range due {
		text := take(consumer, 1)[0]
		// Times are in whole milliseconds.
		expect(time.Since(start) >= due[text]-time.Millisecond, "%s not before its time", text)
		found[text] = true
	}
	same(len(due), len(found))
}

func parts(w *world) {
	producer := w.producer(pulsar.ProducerOptions{BatchingMaxPublishDelay: deadline})
	for i := range 10 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i))},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {})
	}
	check(producer.Flush())
	producer.Close()
	options := pulsar.ConsumerOptions{
		Type: pulsar.Shared, EnableBatchIndexAcknowledgment: true, AckWithResponse: true,
	}
	first := w.consumer(options)
	for i := range 10 {
		message := next(first)
		if i%2 == 0 {
			check(first.Ack(message))
		}
	}
	first.Close()
	second := w.consumer(options)
	defer second.Close()
	same([]string{"m1", "m3", "m5", "m7", "m9"}, take(second, 5))
	nothingMore(second)
}

func cumulative(w *world) {
	w.send("", 0, 10)
	first := w.consumer(pulsar.ConsumerOptions{AckWithResponse: true})
	var last pulsar.Message
	for range 6 {
		last = next(first)
	}
	check(first.AckCumulative(last))
	first.Close()
	second := w.consumer(pulsar.ConsumerOptions{})
	defer second.Close()
	same(numbered(6, 10), take(second, 4))
}

func seek(w *world) {
	ids := w.send("", 0, 5)
	time.Sleep(2 * time.Millisecond)
	middle := time.Now()
	w.send("", 5, 10)
	consumer := w.consumer(pulsar.ConsumerOptions{StartMessageIDInclusive: true})
	defer consumer.Close()
	take(consumer, 10)
	check(consumer.Seek(ids[3]))
	same(numbered(3, 10), take(consumer, 7))
	check(consumer.SeekByTime(middle))
	same(numbered(5, 10), take(consumer, 5))
	last, err := consumer.GetLastMessageIDs()
	check(err)
	same(1, len(last))
}

func readers(w *world) {
	ids := w.send("", 0, 5)
	for _, each := range []struct {
		start     pulsar.MessageID
		inclusive bool
		expected  []string
	}{
		{pulsar.EarliestMessageID(), false, numbered(0, 5)},
		{ids[2], false, numbered(3, 5)},
		{ids[2], true, numbered(2, 5)},
		{pulsar.LatestMessageID(), true, numbered(4, 5)},
		{pulsar.LatestMessageID(), false, nil},
	} {
		reader, err := w.client.CreateReader(pulsar.ReaderOptions{
			Topic: w.topic, StartMessageID: each.start, StartMessageIDInclusive: each.inclusive,
		})
		check(err)
		var texts []string
		for reader.HasNext() {
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			message, err := reader.Next(ctx)
			cancel()
			check(err)
			texts = append(texts, string(message.Payload()))
		}
		same(each.expected, texts)
		reader.Close()
	}
}

func tableView(w *world) {
	producer := w.producer(pulsar.ProducerOptions{})
	defer producer.Close()
	for i := range 10 {
		post(producer, &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%3), Payload: []byte(fmt.Sprint("m", i))})
	}
	schema := pulsar.NewStringSchema(nil)
	var value string
	view, err := w.client.CreateTableView(pulsar.TableViewOptions{
		Topic: w.topic, Schema: schema, SchemaValueType: reflect.TypeOf(&value),
	})
	check(err)
	defer view.Close()
	same(3, view.Size())
	same("m9", *view.Get("k0").(*string))
	heard := make(chan string, 20)
	check(view.ForEachAndListen(func(key string, value any) error {
		heard <- key
		return nil
	}))
	post(producer, &pulsar.ProducerMessage{Key: "new", Payload: []byte("x")})
	for {
		select {
		case key := <-heard:
			if key == "new" {
				return
			}
		case <-time.After(deadline):
			panic("expected: the new key")
		}
	}
}

func several(w *world) {
	w.admin("PUT", strings.Replace(w.topic, "://", "/", 1)+"-parted/partitions", "3")
	topics := []string{w.topic + "-a", w.topic + "-parted"}
	for i, topic := range topics {
		w.send(topic, i*10, i*10+10)
	}
	for _, options := range []pulsar.ConsumerOptions{
		{Topics: topics}, {TopicsPattern: w.topic + "-.*", Name: "pattern"},
	} {
		options.SubscriptionName = "s"
		consumer := w.consumer(options)
		texts := take(consumer, 20)
		slices.Sort(texts)
		expected := numbered(0, 20)
		slices.Sort(expected)
		same(expected, texts)
		check(consumer.Unsubscribe())
	}
}

func exclusiveProducers(w *world) {
	holder := w.producer(pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeExclusive})
	_, err := w.client.CreateProducer(pulsar.ProducerOptions{
		Topic: w.topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive,
	})
	expect(err != nil && strings.Contains(err.Error(), "Fenced"), "ProducerFenced, found: %v", err)
	holder.Close()
	w.producer(pulsar.ProducerOptions{ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive}).Close()
}

func deduplication(w *world) {
	namespace := strings.TrimPrefix(strings.Replace(w.topic, "default/", "", 1), "persistent://")
	w.admin("PUT", "namespaces/"+namespace, "")
	w.admin("POST", "namespaces/"+namespace+"/deduplication", "true")
	topic := "persistent://" + namespace + "/t"
	consumer := w.consumer(pulsar.ConsumerOptions{Topic: topic})
	defer consumer.Close()
	for first := range 2 {
		producer := w.producer(pulsar.ProducerOptions{Topic: topic, Name: "p", DisableBatching: true})
		for i := first; i < first+2; i++ {
			sequence := int64(i)
			post(producer, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i)), SequenceID: &sequence})
		}
		same(first+1, producer.LastSequenceID())
		producer.Close()
	}
	same(numbered(0, 3), take(consumer, 3))
	nothingMore(consumer)
}

func unload(w *world) {
	consumer := w.consumer(pulsar.ConsumerOptions{})
	defer consumer.Close()
	producer := w.producer(pulsar.ProducerOptions{DisableBatching: true})
	defer producer.Close()
	post(producer, &pulsar.ProducerMessage{Payload: []byte("m0")})
	same(numbered(0, 1), take(consumer, 1))
	w.admin("PUT", strings.Replace(w.topic, "://", "/", 1)+"/unload", "")
	post(producer, &pulsar.ProducerMessage{Payload: []byte("m1")})
	for take(consumer, 1)[0] != "m1" {
	}
}
