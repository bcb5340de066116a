// Prints what Apache Kafka says of every inter.broker.protocol.version that it takes: one line each, "name: numbers".
// Run as a source file, with Kafka's jars on the class path.
import org.apache.kafka.server.common.MetadataVersion;

public class InterBrokerVersions {
    public static void main(String[] arguments) {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            System.out.println(version.version() + ": " + version.fetchRequestVersion() + " "
                + version.listOffsetRequestVersion() + " " + version.offsetForLeaderEpochRequestVersion() + " "
                + version.writeTxnMarkersRequestVersion() + " " + (version.isLeaderRecoverySupported() ? 1 : 0) + " "
                + version.shortVersion());
        }
    }
}
