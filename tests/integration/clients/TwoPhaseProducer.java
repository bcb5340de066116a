// A producer of two-phase commit (KIP-939), to be killed: java -cp ... TwoPhaseProducer.java BOOTSTRAP TOPIC ...
//
//   prepare VALUE...   sends the values in a transaction, flushes, prints "prepared ID:EPOCH" and waits
//   keep               keeps what is open, prints "kept ID:EPOCH" and waits
//   complete ID:EPOCH  keeps what is open; commits it when it is that transaction, else aborts it, and says which
//
// The client of Apache Kafka 4.3.1 has all of it inside, and nothing that opens it: InitProducerId 6 is marked unstable,
// nobody sets its two new fields, and the public methods are not there. Reflection opens it here; what is made of the
// answers, and all that follows, is the client's own doing.

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TwoPhaseProducer {
    public static void main(String[] arguments) throws Exception {
        set(ApiMessageType.INIT_PRODUCER_ID, "latestVersionUnstable", false);
        String topic = arguments[1];
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments[0]);
        config.put("transactional.id", topic);
        config.put("transaction.two.phase.commit.enable", "true");
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        Object manager = get(producer, "transactionManager");
        if (arguments[2].equals("prepare")) {
            initialize(producer, manager, false);
            producer.beginTransaction();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 3; i < arguments.length; i++) {
                byte[] value = arguments[i].getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, i % 3, null, value)));
            }
            producer.flush();
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
            call(manager, "prepareTransaction");
            System.out.println("prepared " + text(call(manager, "preparedTransactionState")));
            System.in.read();
        } else {
            initialize(producer, manager, true);
            String open = text(call(manager, "preparedTransactionState"));
            if (arguments[2].equals("keep")) {
                System.out.println("kept " + open);
                System.in.read();
            } else if (open.equals(arguments[3])) {
                producer.commitTransaction();
                System.out.println("committed " + open);
            } else if (open.startsWith("-1:")) {
                System.out.println("nothing");
            } else {
                producer.abortTransaction();
                System.out.println("aborted " + open);
            }
            producer.close();
        }
    }

    /** As initTransactions(boolean) of KIP-939. The manager sends nothing while its lock is held. */
    static void initialize(KafkaProducer<?, ?> producer, Object manager, boolean keep) throws Exception {
        Object result;
        synchronized (manager) {
            result = call(manager, "initializeTransactions", keep);
            Object handler = ((Queue<?>) get(manager, "pendingRequests")).peek();
            InitProducerIdRequest.Builder builder = (InitProducerIdRequest.Builder) get(handler, "builder");
            builder.data.setEnable2Pc(true).setKeepPreparedTxn(keep);
        }
        call(get(producer, "sender"), "wakeup");
        result.getClass().getMethod("await", long.class, TimeUnit.class, String.class)
            .invoke(result, 60, TimeUnit.SECONDS, "initTransactions");
        call(manager, "maybeUpdateTransactionV2Enabled", true);
        // Else it takes what it has kept for a transaction without records, and ends it without a request.
        set(manager, "transactionStarted", call(manager, "isPrepared"));
    }

    static String text(Object producerIdAndEpoch) throws Exception {
        return get(producerIdAndEpoch, "producerId") + ":" + get(producerIdAndEpoch, "epoch");
    }

    static Object call(Object object, String name, boolean... argument) throws Exception {
        Class<?>[] types = argument.length == 0 ? new Class<?>[0] : new Class<?>[] {boolean.class};
        Method method = object.getClass().getDeclaredMethod(name, types);
        method.setAccessible(true);
        return argument.length == 0 ? method.invoke(object) : method.invoke(object, argument[0]);
    }

    static Object get(Object object, String name) throws Exception {
        return field(object, name).get(object);
    }

    static void set(Object object, String name, Object value) throws Exception {
        field(object, name).set(object, value);
    }

    static Field field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }
}
