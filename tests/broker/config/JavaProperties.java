// Reads each file named as java.util.Properties does and prints one line for it: "refused", or its keys and values by key,
// "key=value" with the hexadecimal digits of their UTF-16, parted by blanks. Run as a source file.
import java.io.FileInputStream;
import java.io.InputStream;
import java.util.HexFormat;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;

public class JavaProperties {
    private static String hex(String text) {
        return text.chars().mapToObj(unit -> HexFormat.of().toHexDigits((char) unit)).collect(Collectors.joining());
    }

    public static void main(String[] arguments) throws Exception {
        for (String path : arguments) {
            Properties properties = new Properties();
            try (InputStream file = new FileInputStream(path)) {
                properties.load(file);
            } catch (IllegalArgumentException refusal) {
                System.out.println("refused");
                continue;
            }
            System.out.println(new TreeSet<>(properties.stringPropertyNames()).stream()
                .map(key -> hex(key) + "=" + hex(properties.getProperty(key))).sorted().collect(Collectors.joining(" ")));
        }
    }
}
