import com.google.protobuf.Timestamp;
import java.sql.Time;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Arrays;
import java.util.Date;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaType;

/** Typed topics. */
final class Schemas {
    private Schemas() {}

    /** The first version of a record. */
    public static class Flight {
        public String carrier;
        public int number;

        static Flight of(String carrier, int number) {
            Flight made = new Flight();
            made.carrier = carrier;
            made.number = number;
            return made;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Flight that && carrier.equals(that.carrier) && number == that.number;
        }

        @Override
        public int hashCode() {
            return Objects.hash(carrier, number);
        }

        @Override
        public String toString() {
            return carrier + number;
        }
    }

    /** The same record later. */
    public static class Later {
        public String carrier;
        public int number;
        public String gate;
    }

    /** One that cannot be read as the first. */
    public static class Other {
        public Map<String, String> carrier;
        public int seats;
    }

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("Avro records", world -> records(world, Schema.AVRO(Flight.class)));
        scenarios.put("JSON records", world -> records(world, Schema.JSON(Flight.class)));
        scenarios.put("a record may grow and may not be replaced", Schemas::evolution);
        scenarios.put("native protobuf messages", Schemas::protobufNative);
        scenarios.put("protobuf messages", Schemas::protobuf);
        scenarios.put("keys and values with schemas, inline and apart", Schemas::keyValues);
        scenarios.put("consumers learn the schema from the topic", Schemas::autoConsume);
        scenarios.put("producers of bytes are checked against the topic's schema", Schemas::autoProduce);
        scenarios.put("numbers, texts, dates and times", Schemas::primitives);
    }

    private static <T> Message<T> once(World world, Schema<T> schema, T value) throws Exception {
        String topic = world.topic();
        try (Consumer<T> consumer = world.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
                Producer<T> producer = world.client.newProducer(schema).topic(topic).create()) {
            producer.send(value);
            Message<T> message = World.next(consumer);
            if (value instanceof byte[] bytes) {
                World.check(Arrays.equals(bytes, (byte[]) message.getValue()), "the bytes");
            } else {
                World.same(value, message.getValue());
            }
            return message;
        }
    }

    private static void records(World world, Schema<Flight> schema) throws Exception {
        Message<Flight> message = once(world, schema, Flight.of("AA", 7));
        World.check(Arrays.equals(new byte[8], message.getSchemaVersion()), "the first version");
    }

    private static void evolution(World world) throws Exception {
        String topic = world.topic();
        // Fields that may be absent have null as their default; Avro needs one to read what was written before.
        Schema<Later> later =
                Schema.AVRO(SchemaDefinition.<Later>builder().withPojo(Later.class).withAlwaysAllowNull(true).build());
        try (Producer<Flight> old = world.client.newProducer(Schema.AVRO(Flight.class)).topic(topic).create()) {
            try (Consumer<Flight> reader = world.client.newConsumer(Schema.AVRO(Flight.class)).topic(topic)
                    .subscriptionName("old").subscribe()) {
                old.send(Flight.of("AA", 1));
                World.same(Flight.of("AA", 1), World.take(reader, 1).get(0));
            }
            World.refused(PulsarClientException.IncompatibleSchemaException.class,
                    () -> world.client.newProducer(Schema.AVRO(Other.class)).topic(topic).create());
            World.refused(PulsarClientException.IncompatibleSchemaException.class,
                    () -> world.client.newProducer(Schema.JSON(Flight.class)).topic(topic).create());
            try (Producer<Later> producer = world.client.newProducer(later).topic(topic).create();
                    Consumer<Flight> reader = world.client.newConsumer(Schema.AVRO(Flight.class)).topic(topic)
                            .subscriptionName("new").subscribe()) {
                Later value = new Later();
                value.carrier = "BA";
                value.number = 2;
                value.gate = "G7";
                producer.send(value);
                World.same(Flight.of("BA", 2), World.take(reader, 1).get(0));
            }
        }
    }

    private static void protobufNative(World world) throws Exception {
        once(world, Schema.PROTOBUF_NATIVE(Timestamp.class), Timestamp.newBuilder().setSeconds(7).build());
    }

    private static void protobuf(World world) throws Exception {
        once(world, Schema.PROTOBUF(Timestamp.class), Timestamp.newBuilder().setSeconds(8).build());
    }

    private static void keyValues(World world) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<Flight, Flight>> schema =
                    Schema.KeyValue(Schema.AVRO(Flight.class), Schema.JSON(Flight.class), encoding);
            Message<?> message = once(world, schema, new KeyValue<>(Flight.of("k", 1), Flight.of("v", 2)));
            World.same(encoding == KeyValueEncodingType.SEPARATED, message.hasKey());
        }
        once(world, Schema.KeyValue(Schema.STRING, Schema.INT32, KeyValueEncodingType.SEPARATED),
                new KeyValue<>("k", 5));
    }

    private static void autoConsume(World world) throws Exception {
        for (Schema<Flight> schema : Set.of(Schema.AVRO(Flight.class), Schema.JSON(Flight.class))) {
            String topic = world.topic();
            try (Producer<Flight> producer = world.client.newProducer(schema).topic(topic).create();
                    Consumer<GenericRecord> consumer = world.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic)
                            .subscriptionName("s").subscribe()) {
                producer.send(Flight.of("AA", 7));
                GenericRecord record = World.next(consumer).getValue();
                World.same("AA", record.getField("carrier").toString());
                World.same(7, record.getField("number"));
                World.same(schema.getSchemaInfo().getType(), record.getSchemaType());
            }
        }
        String topic = world.topic();
        try (Consumer<GenericRecord> consumer = world.client.newConsumer(Schema.AUTO_CONSUME()).topic(topic)
                        .subscriptionName("s").subscribe();
                Producer<KeyValue<String, Integer>> producer = world.client
                        .newProducer(Schema.KeyValue(Schema.STRING, Schema.INT32, KeyValueEncodingType.INLINE))
                        .topic(topic).create()) {
            // The consumer was there before the topic had a schema.
            producer.send(new KeyValue<>("k", 5));
            Object value = World.next(consumer).getValue().getNativeObject();
            World.same("k", ((KeyValue<?, ?>) value).getKey());
            World.same(5, ((KeyValue<?, ?>) value).getValue());
        }
    }

    private static void autoProduce(World world) throws Exception {
        String topic = world.topic();
        Schema<Flight> schema = Schema.AVRO(Flight.class);
        try (Consumer<Flight> consumer =
                        world.client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
                Producer<byte[]> producer =
                        world.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create()) {
            producer.send(schema.encode(Flight.of("AA", 9)));
            World.same(Flight.of("AA", 9), World.take(consumer, 1).get(0));
            World.refused(Exception.class, () -> producer.send(new byte[] {-1}));
        }
    }

    private static void primitives(World world) throws Exception {
        Instant now = Instant.ofEpochSecond(1_700_000_000L, 123_456_789);
        once(world, Schema.BYTES, new byte[] {1, 2});
        once(world, Schema.STRING, "é");
        once(world, Schema.BOOL, true);
        once(world, Schema.INT8, (byte) -3);
        once(world, Schema.INT16, (short) -300);
        once(world, Schema.INT32, -70_000);
        once(world, Schema.INT64, 1L << 40);
        once(world, Schema.FLOAT, 1.5f);
        once(world, Schema.DOUBLE, -2.25);
        once(world, Schema.DATE, new Date(1_700_000_000_123L));
        once(world, Schema.TIME, new Time(1_700_000_000_123L));
        once(world, Schema.TIMESTAMP, new java.sql.Timestamp(1_700_000_000_123L));
        once(world, Schema.INSTANT, now);
        once(world, Schema.LOCAL_DATE, LocalDate.of(2024, 2, 29));
        once(world, Schema.LOCAL_TIME, LocalTime.of(23, 59, 58, 7));
        once(world, Schema.LOCAL_DATE_TIME, LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4));
        World.same(SchemaType.LOCAL_DATE_TIME, Schema.LOCAL_DATE_TIME.getSchemaInfo().getType());
    }
}
