import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Each line of input: rules joined by commas, a tab, a principal, each in Base64. Prints the short name, in Base64. */
public class KerberosNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            System.out.println(shortName(text(parts[0]), text(parts[1])));
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static String shortName(String rules, String principal) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules("EXAMPLE", Arrays.asList(rules.split(",")));
        } catch (IllegalArgumentException error) {
            return "refused";
        }
        try {
            String name = namer.shortName(KerberosName.parse(principal));
            return "=" + Base64.getEncoder().encodeToString(name.getBytes(StandardCharsets.UTF_8));
        } catch (Exception error) {
            return "none";
        }
    }
}
