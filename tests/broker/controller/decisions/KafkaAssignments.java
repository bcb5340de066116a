import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.TreeMap;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/**
 * What Kafka's own AdminUtils assigns. A line in: partitions, replication factor, start index, first partition, then
 * brokers as "id" or "id:rack". A line out: the replicas of each partition as "0=1,2 1=2,0".
 */
public class KafkaAssignments {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] words = in.nextLine().trim().split(" ");
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (int i = 4; i < words.length; i++) {
                String[] parts = words[i].split(":");
                Optional<String> rack = parts.length > 1 ? Optional.of(parts[1]) : Optional.empty();
                brokers.add(new BrokerMetadata(Integer.parseInt(parts[0]), rack));
            }
            Map<Integer, List<Integer>> assigned = new TreeMap<>(AdminUtils.assignReplicasToBrokers(
                brokers,
                Integer.parseInt(words[0]),
                Integer.parseInt(words[1]),
                Integer.parseInt(words[2]),
                Integer.parseInt(words[3])));
            StringBuilder line = new StringBuilder();
            assigned.forEach((partition, replicas) -> {
                line.append(line.length() == 0 ? "" : " ").append(partition).append('=');
                for (int i = 0; i < replicas.size(); i++) {
                    line.append(i == 0 ? "" : ",").append(replicas.get(i));
                }
            });
            System.out.println(line);
        }
    }
}
