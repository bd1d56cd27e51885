// A load of the official Go client, for bench/clients: paced (an open loop), flooding, or one message at a time.
//
// Prints "begin" when the measured time begins, "end" when it ends, and then one JSON object. Times are
// counted from when a message was due, whether or not it could be sent then.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

var (
	url         = flag.String("url", "pulsar://127.0.0.1:6650", "service URL")
	topic       = flag.String("topic", "bench", "topic; with several topics the beginning of their names")
	mode        = flag.String("mode", "paced", "paced, flood or sync")
	rate        = flag.Int64("rate", 1000, "messages a second of all connections together, in mode paced")
	payload     = flag.Int("payload-bytes", 1024, "bytes of a message, 8 at least")
	batching    = flag.Bool("batching", false, "let the client gather messages for a millisecond")
	pending     = flag.Int("pending", 1000, "messages of a producer that may wait for their receipts")
	connections = flag.Int("connections", 1, "clients with a connection and a producer each")
	topics      = flag.Int("topics", 1, "topics, to which the producers are dealt")
	consume     = flag.Bool("consume", false, "consumers too, which acknowledge each message by itself")
	warmUp      = flag.Float64("warm-up", 3, "seconds of load before the measured time")
	seconds     = flag.Float64("seconds", 10, "measured time")
)

// What a message, a callback and a consumer note. A lock: at 20,000 a second nobody waits for it.
type latencies struct {
	sync.Mutex
	histogram *hdrhistogram.Histogram
	maxNs     int64
}

func newLatencies() *latencies {
	return &latencies{histogram: hdrhistogram.New(1_000, 600_000_000_000, 3)}
}

func (l *latencies) add(ns int64) {
	l.Lock()
	defer l.Unlock()
	l.maxNs = max(l.maxNs, ns)
	_ = l.histogram.RecordValue(max(ns, 1_000))
}

func (l *latencies) milliseconds(prefix string, out map[string]float64) {
	l.Lock()
	defer l.Unlock()
	if l.histogram.TotalCount() == 0 {
		return
	}
	for name, percentile := range map[string]float64{"p50": 50, "p99": 99, "p99.9": 99.9, "p99.99": 99.99} {
		out[prefix+name+"_ms"] = float64(l.histogram.ValueAtQuantile(percentile)) / 1e6
	}
	out[prefix+"max_ms"] = float64(l.maxNs) / 1e6
}

const clockMonotonic, timerAbsolute = 1, 1

// now is CLOCK_MONOTONIC, which sleepUntil counts in.
func now() int64 {
	var at syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	return at.Nano()
}

// sleepUntil wakes within a tenth of a millisecond; Go's own timers have a whole one when nothing else runs.
func sleepUntil(ns int64) {
	at := syscall.NsecToTimespec(ns)
	_, _, _ = syscall.Syscall6(
		syscall.SYS_CLOCK_NANOSLEEP, clockMonotonic, timerAbsolute, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A load is what all its goroutines share.
type load struct {
	producers                []pulsar.Producer
	clients                  []pulsar.Client
	beginNs, endNs           int64 // of the measured time
	sent, late, delivered    *latencies
	acknowledged, deliveries atomic.Int64 // inside the measured time
	failed, unanswered       atomic.Int64
}

func (l *load) measured(ns int64) bool { return ns >= l.beginNs && ns < l.endNs }

func (l *load) open() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	names := make([]string, *topics)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", *topic, i)
	}
	for i := range *connections {
		client, err := pulsar.NewClient(pulsar.ClientOptions{
			URL: *url, Logger: log.NewLoggerWithLogrus(quiet), OperationTimeout: 60 * time.Second,
			ConnectionTimeout: 60 * time.Second,
		})
		check(err)
		producer, err := client.CreateProducer(pulsar.ProducerOptions{
			Topic: names[i%len(names)], DisableBatching: !*batching, MaxPendingMessages: *pending,
			BatchingMaxPublishDelay: time.Millisecond, BatchingMaxMessages: 1000, BatchingMaxSize: 128 << 10,
			SendTimeout: -1, DisableBlockIfQueueFull: false,
		})
		check(err)
		l.clients, l.producers = append(l.clients, client), append(l.producers, producer)
	}
	if *consume {
		for i, name := range names {
			consumer, err := l.clients[i%len(l.clients)].Subscribe(pulsar.ConsumerOptions{
				Topic: name, SubscriptionName: "bench", Type: pulsar.Shared,
				AckGroupingOptions: &pulsar.AckGroupingOptions{MaxSize: 1},
			})
			check(err)
			go l.receive(consumer)
		}
	}
}

func (l *load) receive(consumer pulsar.Consumer) {
	for {
		message, err := consumer.Receive(context.Background())
		if err != nil {
			return
		}
		at := now()
		check(consumer.Ack(message))
		due := int64(binary.LittleEndian.Uint64(message.Payload()))
		if l.measured(due) {
			l.delivered.add(at - due)
		}
		if l.measured(at) {
			l.deliveries.Add(1)
		}
	}
}

func newPayload() []byte {
	bytes := make([]byte, *payload)
	_, _ = rand.Read(bytes)
	return bytes
}

func (l *load) send(producer pulsar.Producer, content []byte, due int64) {
	message := append([]byte(nil), content...)
	binary.LittleEndian.PutUint64(message, uint64(due))
	l.unanswered.Add(1)
	producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: message},
		func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			l.answered(due, err)
		})
}

func (l *load) answered(due int64, err error) {
	at := now()
	l.unanswered.Add(-1)
	if err != nil {
		l.failed.Add(1)
		return
	}
	if l.measured(due) {
		l.sent.add(at - due)
	}
	if l.measured(at) {
		l.acknowledged.Add(1)
	}
}

// pace sends message i at start + i / rate.
func (l *load) pace(start int64) {
	runtime.LockOSThread()
	content := newPayload()
	for i := int64(0); ; i++ {
		due := start + i*1_000_000_000 / *rate
		if due >= l.endNs {
			return
		}
		if at := now(); at < due {
			sleepUntil(due)
		}
		if l.measured(due) {
			l.late.add(now() - due)
		}
		l.send(l.producers[i%int64(len(l.producers))], content, due)
	}
}

func (l *load) flood(producer pulsar.Producer) {
	content := newPayload()
	for at := now(); at < l.endNs; at = now() {
		l.send(producer, content, at)
	}
}

func (l *load) oneByOne(producer pulsar.Producer) {
	content := newPayload()
	for at := now(); at < l.endNs; at = now() {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: content})
		l.unanswered.Add(1)
		l.answered(at, err)
	}
}

func main() {
	flag.Parse()
	// A client whose broker has gone asks for it for ever.
	time.AfterFunc(time.Duration((*warmUp+*seconds+120)*1e9), func() {
		check(fmt.Errorf("not done two minutes after the end"))
	})
	l := &load{sent: newLatencies(), late: newLatencies(), delivered: newLatencies()}
	l.open()
	start := now() + 50_000_000
	l.beginNs = start + int64(*warmUp*1e9)
	l.endNs = l.beginNs + int64(*seconds*1e9)
	var running sync.WaitGroup
	work := func(task func()) {
		running.Add(1)
		go func() {
			defer running.Done()
			task()
		}()
	}
	switch *mode {
	case "paced":
		work(func() { l.pace(start) })
	case "flood", "sync":
		for _, producer := range l.producers {
			if *mode == "flood" {
				work(func() { l.flood(producer) })
			} else {
				work(func() { l.oneByOne(producer) })
			}
		}
	default:
		check(fmt.Errorf("mode is %q, allowed are paced, flood, sync", *mode))
	}
	time.Sleep(time.Duration(l.beginNs - now()))
	fmt.Println("begin")
	time.Sleep(time.Duration(l.endNs - now()))
	fmt.Println("end")
	acknowledged, deliveries := l.acknowledged.Load(), l.deliveries.Load()
	running.Wait()
	for deadline := now() + 10_000_000_000; l.unanswered.Load() > 0 && now() < deadline; {
		time.Sleep(10 * time.Millisecond)
	}
	out := map[string]float64{
		"messages": float64(acknowledged), "failed": float64(l.failed.Load()),
		"unanswered": float64(l.unanswered.Load()),
	}
	if *consume {
		out["deliveries"] = float64(deliveries)
	}
	l.sent.milliseconds("", out)
	l.late.milliseconds("late_", out)
	l.delivered.milliseconds("end_to_end_", out)
	check(json.NewEncoder(os.Stdout).Encode(out))
}
