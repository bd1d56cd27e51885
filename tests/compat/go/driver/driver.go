// Runs scenarios with the official Go client against a broker, all at once since most of their time is waiting.
//
// Arguments: broker URL, HTTP URL. Prints a line for each: "ok NAME", or "failed NAME: REASON".
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

// Long: what is slow on a busy machine is no failure; what never comes is one.
const deadline = 60 * time.Second

// What all scenarios together may take.
const end = 240 * time.Second

// A world is what every scenario needs: a client, topics of its own, the admin API.
type world struct {
	client pulsar.Client
	broker string
	http   string
	topic  string
}

type scenario func(w *world)

var scenarios = map[string]scenario{}

func add(name string, run scenario) { scenarios[name] = run }

// check ends the scenario with an error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Errorf("expected: "+format, arguments...))
	}
}

func same(expected, found any) {
	expect(fmt.Sprint(expected) == fmt.Sprint(found), "%.100q, found: %.100q", fmt.Sprint(expected), fmt.Sprint(found))
}

func (w *world) admin(method, path, body string) {
	request, err := http.NewRequest(method, w.http+"/admin/v2/"+path, strings.NewReader(body))
	check(err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	check(err)
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	expect(answer.StatusCode/100 == 2, "%s %s succeeds: %d %s", method, path, answer.StatusCode, text)
}

// An explainedError says already what the broker and the client say.
type explainedError struct{ error }

// A journal keeps the last lines that the client logs of each topic.
type journal struct {
	lock  sync.Mutex
	lines map[string][]string
}

const linesMax = 40

func (j *journal) Levels() []logrus.Level { return logrus.AllLevels }

func (j *journal) Fire(entry *logrus.Entry) error {
	topic, _ := entry.Data["topic"].(string)
	line := fmt.Sprint(entry.Time.Format("15:04:05.000 "), entry.Message)
	if cause, has := entry.Data["error"]; has {
		line = fmt.Sprint(line, ": ", cause)
	}
	j.lock.Lock()
	defer j.lock.Unlock()
	kept := append(j.lines[topic], line)
	j.lines[topic] = kept[max(0, len(kept)-linesMax):]
	return nil
}

func (j *journal) of(topic string) string {
	j.lock.Lock()
	defer j.lock.Unlock()
	return strings.Join(j.lines[topic], "\\n")
}

var logged = &journal{lines: map[string][]string{}}

// explained is what the broker says of the scenario's topic, whether something waits and for what, and what the
// client logged of it.
func (w *world) explained() string {
	answer, err := http.Get(w.http + "/admin/v2/" + strings.Replace(w.topic, "://", "/", 1) + "/explain")
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	said := strings.ReplaceAll(string(text), "\n", " ")
	return "; the broker says: " + said + "; the client logged:\\n" + logged.of(w.topic)
}

func (w *world) producer(options pulsar.ProducerOptions) pulsar.Producer {
	if options.Topic == "" {
		options.Topic = w.topic
	}
	made, err := w.client.CreateProducer(options)
	check(err)
	return made
}

// worlds has the world of each consumer that one made.
var worlds sync.Map

func (w *world) consumer(options pulsar.ConsumerOptions) pulsar.Consumer {
	if options.Topic == "" && options.TopicsPattern == "" && options.Topics == nil {
		options.Topic = w.topic
	}
	options.SubscriptionName = "s"
	options.SubscriptionInitialPosition = pulsar.SubscriptionPositionEarliest
	made, err := w.client.Subscribe(options)
	check(err)
	worlds.Store(made, w)
	return made
}

// send publishes texts named by their numbers, one entry each, and returns their ids.
func (w *world) send(topic string, first, end int) []pulsar.MessageID {
	producer := w.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	defer producer.Close()
	var ids []pulsar.MessageID
	for i := first; i < end; i++ {
		ids = append(ids, post(producer, &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint("m", i))}))
	}
	return ids
}

func post(producer pulsar.Producer, message *pulsar.ProducerMessage) pulsar.MessageID {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	id, err := producer.Send(ctx, message)
	check(err)
	return id
}

func next(consumer pulsar.Consumer) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if w, known := worlds.Load(consumer); err != nil && known {
		// Here: on its way out of the scenario the panic closes the consumer.
		panic(explainedError{fmt.Errorf("%w%s", err, w.(*world).explained())})
	}
	check(err)
	return message
}

// take receives and acknowledges so many messages.
func take(consumer pulsar.Consumer, count int) []string {
	var texts []string
	for range count {
		message := next(consumer)
		texts = append(texts, string(message.Payload()))
		check(consumer.Ack(message))
	}
	return texts
}

// buried refuses a message until it is a dead letter, and hands over the consumer of those.
func (w *world) buried(delay time.Duration, look func(letters pulsar.Consumer)) {
	dead := w.topic + "-dead"
	consumer := w.consumer(pulsar.ConsumerOptions{
		Type: pulsar.Shared, NackRedeliveryDelay: delay,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: dead, InitialSubscriptionName: "s"},
	})
	defer consumer.Close()
	w.send("", 0, 1)
	for range 2 {
		consumer.Nack(next(consumer))
	}
	letters := w.consumer(pulsar.ConsumerOptions{Topic: dead})
	defer letters.Close()
	look(letters)
}

func numbered(first, end int) []string {
	var made []string
	for i := first; i < end; i++ {
		made = append(made, fmt.Sprint("m", i))
	}
	return made
}

func nothingMore(consumer pulsar.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err == nil {
		panic(fmt.Errorf("expected: no message, but there was %s", message.Payload()))
	}
}

func run(name string, each scenario, w *world) (line string) {
	defer func() {
		reason := recover()
		if _, is := reason.(explainedError); is {
			line = fmt.Sprintf("failed %s: %v", name, reason)
		} else if reason != nil {
			line = fmt.Sprintf("failed %s: %v%s", name, reason, w.explained())
		}
	}()
	each(w)
	return "ok " + name
}

func main() {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	quiet.AddHook(logged)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: os.Args[1], Logger: log.NewLoggerWithLogrus(quiet), OperationTimeout: deadline,
	})
	check(err)
	var all sync.WaitGroup
	var printing sync.Mutex
	started := time.Now().UnixNano()
	number := 0
	chosen := map[string]bool{}
	for _, name := range os.Args[3:] {
		chosen[name] = true
	}
	for name, each := range scenarios {
		if len(chosen) > 0 && !chosen[name] {
			continue
		}
		number++
		w := &world{client, os.Args[1], os.Args[2], fmt.Sprintf("persistent://public/default/go-%d-%d", started, number)}
		all.Add(1)
		go func() {
			defer all.Done()
			line := run(name, each, w)
			printing.Lock()
			fmt.Println(line)
			printing.Unlock()
		}()
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(end):
		// What has not printed its line by now has failed; this tells where it waits.
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
}
