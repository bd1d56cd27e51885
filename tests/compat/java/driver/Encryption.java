import java.security.Key;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;

/** Messages that only their clients can read. */
final class Encryption {
    private Encryption() {}

    static void add(Map<String, Driver.Scenario> scenarios) {
        scenarios.put("encrypted messages are read by who has the key", Encryption::encrypted);
    }

    private static EncryptionKeyInfo pem(String label, Key key) {
        String text = Base64.getMimeEncoder(64, "\n".getBytes()).encodeToString(key.getEncoded());
        return new EncryptionKeyInfo(
                ("-----BEGIN " + label + "-----\n" + text + "\n-----END " + label + "-----\n").getBytes(), Map.of());
    }

    static CryptoKeyReader keys() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        return new CryptoKeyReader() {
            @Override
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                return pem("PUBLIC KEY", pair.getPublic());
            }

            @Override
            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                return pem("PRIVATE KEY", pair.getPrivate());
            }
        };
    }

    private static void encrypted(World world) throws Exception {
        CryptoKeyReader keys = keys();
        for (boolean batched : new boolean[] {true, false}) {
            String topic = world.topic();
            try (Consumer<String> reader = world.consumer(topic, SubscriptionType.Exclusive).cryptoKeyReader(keys)
                            .subscribe();
                    Consumer<byte[]> stranger = world.client.newConsumer().topic(topic).subscriptionName("stranger")
                            .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
                    Producer<String> producer = world.client.newProducer(Schema.STRING).topic(topic)
                            .enableBatching(batched).batchingMaxPublishDelay(50, TimeUnit.MILLISECONDS)
                            .cryptoKeyReader(keys).addEncryptionKey("mine").create()) {
                for (int i = 0; i < 5; i++) {
                    producer.sendAsync("m" + i);
                }
                producer.flush();
                World.same(World.numbered(0, 5), World.take(reader, 5));
                Message<byte[]> sealed = World.next(stranger);
                World.check(sealed.getEncryptionCtx().isPresent(), "the mark of an encrypted message");
                World.check(!new String(sealed.getData()).contains("m0"), "nothing that can be read");
            }
        }
    }
}
