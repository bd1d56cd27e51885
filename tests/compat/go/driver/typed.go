package main

import (
	"reflect"

	"github.com/apache/pulsar-client-go/pulsar"
)

type flight struct {
	Carrier string `json:"carrier" avro:"carrier"`
	Number  int    `json:"number" avro:"number"`
}

const definition = `{"type":"record","name":"Flight","namespace":"go","fields":[` +
	`{"name":"carrier","type":"string"},{"name":"number","type":"int"}]}`

func schemas(w *world) {
	for name, schema := range map[string]pulsar.Schema{
		"-json":   pulsar.NewJSONSchema(definition, nil),
		"-avro":   pulsar.NewAvroSchema(definition, nil),
		"-string": pulsar.NewStringSchema(nil),
		"-int64":  pulsar.NewInt64Schema(nil),
		"-double": pulsar.NewDoubleSchema(nil),
		"-bytes":  pulsar.NewBytesSchema(nil),
	} {
		var sent, found any
		switch name {
		case "-json", "-avro":
			sent, found = flight{"AA", 7}, &flight{}
		case "-string":
			sent, found = "text", new(*string)
		case "-int64":
			sent, found = int64(1)<<40, new(int64)
		case "-double":
			sent, found = 2.5, new(float64)
		case "-bytes":
			sent, found = []byte("bytes"), &[]byte{}
		}
		consumer := w.consumer(pulsar.ConsumerOptions{Topic: w.topic + name, Schema: schema})
		producer := w.producer(pulsar.ProducerOptions{Topic: w.topic + name, Schema: schema})
		post(producer, &pulsar.ProducerMessage{Value: sent})
		check(next(consumer).GetSchemaValue(found))
		same(sent, reflect.Indirect(reflect.ValueOf(found).Elem()).Interface())
		producer.Close()
		consumer.Close()
	}
	_, err := w.client.CreateProducer(pulsar.ProducerOptions{
		Topic: w.topic + "-json", Schema: pulsar.NewInt64Schema(nil),
	})
	expect(err != nil, "another schema is refused")
}
