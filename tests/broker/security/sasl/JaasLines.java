import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;

/** Reads JAAS lines, each in Base64 of UTF-16, as Apache Kafka does; prints the module and its options likewise. */
public class JaasLines {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        Class<?> type = Class.forName("org.apache.kafka.common.security.JaasConfig");
        var constructor = type.getConstructor(String.class, String.class);
        constructor.setAccessible(true);
        for (String line; (line = lines.readLine()) != null; ) {
            String text = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_16BE);
            String printed = "refused";
            try {
                Configuration found = (Configuration) constructor.newInstance("any", text);
                AppConfigurationEntry[] entries = found.getAppConfigurationEntry("any");
                if (entries.length == 1 && !entries[0].getOptions().containsKey(null)) {
                    StringBuilder all = new StringBuilder(encoded(entries[0].getLoginModuleName()));
                    new TreeMap<String, Object>(entries[0].getOptions()).forEach(
                        (name, value) -> all.append(' ').append(encoded(name)).append(' ').append(encoded((String) value)));
                    printed = all.toString();
                }
            } catch (java.lang.reflect.InvocationTargetException refused) {
                // it stays "refused"
            }
            System.out.println(printed);
        }
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
