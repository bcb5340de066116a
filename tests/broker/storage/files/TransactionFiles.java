import java.io.File;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/** Reads transaction indexes and snapshots with Kafka's classes and writes them again, each beside itself. */
public class TransactionFiles {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            File file = new File(name);
            File again = new File(name + ".again");
            if (name.endsWith(".snapshot")) {
                Map<Long, ProducerStateEntry> entries = new HashMap<>();
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                    entries.put(entry.producerId(), entry);
                }
                ProducerStateManager.writeSnapshot(again, entries, false);
            } else {
                TransactionIndex index = new TransactionIndex(0, file);
                index.sanityCheck();
                TransactionIndex copy = new TransactionIndex(0, again);
                for (AbortedTxn transaction : index.allAbortedTxns()) {
                    copy.append(transaction);
                }
                copy.close();
                index.close();
            }
        }
    }
}
