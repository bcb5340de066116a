// Prints which of its arguments Apache Kafka takes as a message format version: one line each, "true" or "false".
// Run as a source file, with Kafka's jars on the class path.
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.common.MetadataVersionValidator;

public class MessageFormatVersions {
    public static void main(String[] arguments) {
        MetadataVersionValidator validator = new MetadataVersionValidator();
        for (String version : arguments) {
            boolean taken = true;
            try {
                validator.ensureValid("message.format.version", version);
            } catch (ConfigException refusal) {
                taken = false;
            }
            System.out.println(taken);
        }
    }
}
