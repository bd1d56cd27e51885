import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;

/**
 * The same for a broker with TLS and authentication.
 *
 * Arguments: broker URL and HTTP URL, both with TLS, the authority's certificate, a token of "root", and
 * root's certificate and key.
 */
final class SecuredDriver {
    private static String authority;

    public static void main(String[] arguments) throws Exception {
        String broker = arguments[0];
        String https = arguments[1];
        authority = arguments[2];
        String token = arguments[3];
        Authentication certificate = AuthenticationFactory.TLS(arguments[4], arguments[5]);
        AuthenticationBasic password = new AuthenticationBasic();
        password.configure("{\"userId\":\"root\",\"password\":\"secret\"}");
        AuthenticationBasic wrongPassword = new AuthenticationBasic();
        wrongPassword.configure("{\"userId\":\"root\",\"password\":\"wrong\"}");
        Map<String, Driver.Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("a token over TLS", world -> works(world, broker, AuthenticationFactory.token(token)));
        scenarios.put("a certificate", world -> works(world, broker, certificate));
        scenarios.put("a password", world -> works(world, broker, password));
        scenarios.put("lookups over HTTPS with a token",
                world -> works(world, https, AuthenticationFactory.token(token)));
        scenarios.put("no credentials are refused", world -> fails(world, broker, null));
        scenarios.put("a wrong password is refused", world -> fails(world, broker, wrongPassword));
        scenarios.put("a damaged token is refused",
                world -> fails(world, broker, AuthenticationFactory.token(token + "A")));
        Driver.runAll(scenarios, new World(broker, https), List.of());
    }

    private static PulsarClient client(String url, Authentication authentication) throws Exception {
        var builder = PulsarClient.builder().serviceUrl(url).tlsTrustCertsFilePath(authority)
                .enableTlsHostnameVerification(true).operationTimeout(15, TimeUnit.SECONDS);
        return (authentication == null ? builder : builder.authentication(authentication)).build();
    }

    private static void works(World world, String url, Authentication authentication) throws Exception {
        String topic = world.topic();
        try (PulsarClient client = client(url, authentication);
                Consumer<String> consumer =
                        client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s").subscribe();
                Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).create()) {
            producer.send("m0");
            World.same(List.of("m0"), World.take(consumer, 1));
        }
    }

    private static void fails(World world, String url, Authentication authentication) throws Exception {
        try (PulsarClient client = client(url, authentication)) {
            World.refused(PulsarClientException.class, () -> client.newProducer().topic(world.topic()).create());
        }
    }
}
