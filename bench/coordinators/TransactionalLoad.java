// Transactional producers, and a read_committed consumer where it is asked for, in one JVM. Arguments are NAME=VALUE.
// It prints "measuring" after the warm-up and "NAME=VALUE ..." at the end. Started as a source file by transactional.py.

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class TransactionalLoad {
    private static final Map<String, String> ARGUMENTS = new HashMap<>();
    private static volatile boolean isMeasuring;
    private static volatile boolean isOver;

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            ARGUMENTS.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        int producers = number("producers");
        CountDownLatch ready = new CountDownLatch(producers + 1);
        List<Producer> running = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        Consumer consumer = null;
        if (number("consumers") > 0) {
            consumer = new Consumer(ready);
            threads.add(start(consumer));
        } else {
            ready.countDown();
        }
        for (int index = 0; index < producers; index++) {
            Producer producer = new Producer(index, ready);
            running.add(producer);
            threads.add(start(producer));
        }
        ready.await();
        Thread.sleep(number("warm-up-ms"));
        System.out.println("measuring");
        long started = System.nanoTime();
        isMeasuring = true;
        Thread.sleep(number("measured-ms"));
        isMeasuring = false;
        double seconds = (System.nanoTime() - started) / 1e9;
        long transactions = running.stream().mapToLong(producer -> producer.transactions).sum();
        long records = running.stream().mapToLong(producer -> producer.records).sum();
        Samples commits = new Samples();
        running.forEach(producer -> commits.addAll(producer.commits));
        String line = String.format(Locale.ROOT,
            "seconds=%.6f transactions=%d records=%d commit_p50_ms=%.4f commit_p99_ms=%.4f",
            seconds, transactions, records, commits.percentileMs(0.50), commits.percentileMs(0.99));
        if (consumer != null) {
            line += String.format(Locale.ROOT, " consumed=%d end_to_end_p50_ms=%.4f end_to_end_p99_ms=%.4f",
                consumer.records, consumer.latencies.percentileMs(0.50), consumer.latencies.percentileMs(0.99));
        }
        // The broker's CPU is read when this line comes: what ends the producers is not part of it.
        System.out.println(line);
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static int number(String name) {
        return Integer.parseInt(ARGUMENTS.get(name));
    }

    private static Thread start(Runnable load) {
        Thread thread = new Thread(() -> {
            try {
                load.run();
            } catch (Throwable failure) {
                failure.printStackTrace();
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    /** One producer: transaction after transaction, each ended after so many records or so many milliseconds. */
    private static final class Producer implements Runnable {
        private final int index;
        private final CountDownLatch ready;
        private final Samples commits = new Samples();
        private volatile long transactions;
        private volatile long records;

        Producer(int index, CountDownLatch ready) {
            this.index = index;
            this.ready = ready;
        }

        @Override
        public void run() {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", ARGUMENTS.get("bootstrap"));
            settings.put("transactional.id", ARGUMENTS.get("topic") + "-" + index);
            settings.put("batch.size", ARGUMENTS.get("batch-size"));
            settings.put("linger.ms", ARGUMENTS.get("linger-ms"));
            // With 32 MB a flush at full speed takes twice as long as the 100 ms between two commits.
            settings.put("buffer.memory", 4 * 1024 * 1024);
            String topic = ARGUMENTS.get("topic");
            int recordBytes = number("record-bytes");
            int recordLimit = number("commit-records");
            long limitNs = number("commit-ms") * 1_000_000L;
            long intervalNs = number("rate") > 0 ? 1_000_000_000L * number("producers") / number("rate") : 0;
            try (KafkaProducer<byte[], byte[]> producer =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                producer.initTransactions();
                ready.countDown();
                long due = System.nanoTime();
                while (!isOver) {
                    producer.beginTransaction();
                    long began = System.nanoTime();
                    int sent = 0;
                    while (sent < recordLimit && System.nanoTime() - began < limitNs) {
                        if (intervalNs > 0) {
                            while (System.nanoTime() < due) {
                                LockSupport.parkNanos(due - System.nanoTime());
                            }
                            due += intervalNs;
                        }
                        byte[] value = new byte[recordBytes];
                        ByteBuffer.wrap(value).putLong(System.nanoTime());
                        producer.send(new ProducerRecord<>(topic, value));
                        sent++;
                    }
                    // A commit waits for what is queued: without this, its time would be that of the queue.
                    producer.flush();
                    boolean counts = isMeasuring;
                    long asked = System.nanoTime();
                    producer.commitTransaction();
                    if (counts && isMeasuring) {
                        commits.add(System.nanoTime() - asked);
                        transactions++;
                        records += sent;
                    }
                }
            }
        }
    }

    /** Reads all partitions from their ends on, only what is committed. */
    private static final class Consumer implements Runnable {
        private final CountDownLatch ready;
        private final Samples latencies = new Samples();
        private volatile long records;

        Consumer(CountDownLatch ready) {
            this.ready = ready;
        }

        @Override
        public void run() {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", ARGUMENTS.get("bootstrap"));
            settings.put("isolation.level", "read_committed");
            settings.put("enable.auto.commit", "false");
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                List<TopicPartition> partitions = consumer.partitionsFor(ARGUMENTS.get("topic")).stream()
                    .map(found -> new TopicPartition(found.topic(), found.partition())).collect(Collectors.toList());
                consumer.assign(partitions);
                consumer.seekToEnd(partitions);
                partitions.forEach(consumer::position);
                ready.countDown();
                while (!isOver) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        if (isMeasuring) {
                            records++;
                            latencies.add(System.nanoTime() - ByteBuffer.wrap(record.value()).getLong());
                        }
                    }
                }
            }
        }
    }

    /** Durations in nanoseconds. */
    private static final class Samples {
        private long[] values = new long[1024];
        private int count;

        synchronized void add(long value) {
            if (count == values.length) {
                values = Arrays.copyOf(values, 2 * count);
            }
            values[count++] = value;
        }

        void addAll(Samples other) {
            synchronized (other) {
                for (int index = 0; index < other.count; index++) {
                    add(other.values[index]);
                }
            }
        }

        synchronized double percentileMs(double share) {
            if (count == 0) {
                return Double.NaN;
            }
            long[] sorted = Arrays.copyOf(values, count);
            Arrays.sort(sorted);
            return sorted[Math.min(count - 1, (int) (share * count))] / 1e6;
        }
    }
}
