// Prints what Apache Kafka 3.9.1's own classes write into ZooKeeper, one line per case: name, path, data.
// Its output is tests/broker/coordination/znodes_kafka_3_9.tsv; test_znodes.py says how to write it again (needs a JDK).

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.feature.Features;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.zookeeper.data.ACL;
import scala.Option;
import scala.Some;
import scala.Tuple2;
import scala.collection.JavaConverters;
import scala.collection.immutable.Set;

public class ZnodeGolden {
    static final java.util.Set<String> PATHS = new LinkedHashSet<>();

    static void print(String name, String path, byte[] data) {
        PATHS.add(path);
        System.out.println(name + "\t" + path + "\t" + (data == null ? "" : new String(data, StandardCharsets.UTF_8)));
    }

    static scala.collection.immutable.List<Object> ints(Integer... values) {
        return JavaConverters.asScalaBuffer(new ArrayList<Object>(Arrays.asList(values))).toList();
    }

    static <K, V> scala.collection.Map<K, V> map(Map<K, V> values) {
        return JavaConverters.mapAsScalaMap(values);
    }

    static <T> Set<T> set(List<T> values) {
        return JavaConverters.asScalaSet(new LinkedHashSet<T>(values)).toSet();
    }

    static EndPoint endPoint(String name, String host, int port, SecurityProtocol protocol) {
        return new EndPoint(host, port, new ListenerName(name), protocol);
    }

    static void broker(String name, int version, int id, Option<String> rack, Map<String, SupportedVersionRange> features,
                       EndPoint... endPoints) {
        // The registration carries the time of its encoding: replaced, so that the output is always the same.
        Broker broker = new Broker(id, JavaConverters.asScalaBuffer(Arrays.asList(endPoints)).toList(), rack,
            Features.supportedFeatures(features));
        BrokerInfo info = new BrokerInfo(broker, version, 9999);
        String json = new String(info.toJsonBytes(), StandardCharsets.UTF_8)
            .replaceAll("\"timestamp\":\"[0-9]+\"", "\"timestamp\":\"1700000000000\"");
        print(name, info.path(), json.getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] arguments) {
        Option<String> none = Option.empty();
        print("controller", ControllerZNode.path(), ControllerZNode.encode(1, 1700000000000L, -1));
        print("controller_epoch", ControllerEpochZNode.path(), ControllerEpochZNode.encode(7));
        print("cluster_id", ClusterIdZNode.path(), ClusterIdZNode.toJson("vPZ1AAyBTWKgxXiD9fBbWA"));

        Map<String, SupportedVersionRange> features = new LinkedHashMap<>();
        EndPoint client = endPoint("CLIENT", "h1", 9092, SecurityProtocol.PLAINTEXT);
        EndPoint internal = endPoint("INTERNAL", "h2", 9093, SecurityProtocol.PLAINTEXT);
        broker("broker_v5_rack", 5, 1, new Some<>("zone-a"), features, client, internal);
        broker("broker_v5", 5, 2, none, features, client);
        broker("broker_v4_rack", 4, 3, new Some<>("zone-a"), features, client, internal);
        broker("broker_v2", 2, 3, none, features, endPoint("PLAINTEXT", "h1", 9092, SecurityProtocol.PLAINTEXT));
        broker("broker_v5_no_plaintext", 5, 1, none, features, endPoint("SECURE", "h1", 9092, SecurityProtocol.SSL));
        broker("broker_v5_ipv6", 5, 1, none, features, endPoint("PLAINTEXT", "::1", 9092, SecurityProtocol.PLAINTEXT));
        broker("broker_v5_many", 5, 1, none, features, endPoint("A", "h", 1, SecurityProtocol.PLAINTEXT),
            endPoint("B", "h", 2, SecurityProtocol.SSL), endPoint("C", "h", 3, SecurityProtocol.SASL_PLAINTEXT),
            endPoint("D", "h", 4, SecurityProtocol.SASL_SSL));
        Map<String, SupportedVersionRange> transactions = new LinkedHashMap<>();
        transactions.put("transaction.version", new SupportedVersionRange((short) 0, (short) 2));
        broker("broker_v5_features", 5, 1, new Some<>("zone-a"), transactions, client);

        Map<TopicPartition, ReplicaAssignment> assignment = new LinkedHashMap<>();
        assignment.put(new TopicPartition("t", 0), new ReplicaAssignment(ints(1, 2), ints(), ints()));
        assignment.put(new TopicPartition("t", 1), new ReplicaAssignment(ints(2, 1), ints(), ints()));
        Uuid id = Uuid.fromString("vPZ1AAyBTWKgxXiD9fBbWA");
        print("topic", TopicZNode.path("t"), TopicZNode.encode(new Some<>(id), map(assignment)));
        print("topic_without_id", TopicZNode.path("t"), TopicZNode.encode(Option.empty(), map(assignment)));
        assignment.put(new TopicPartition("t", 1), new ReplicaAssignment(ints(3, 2, 1), ints(3), ints(1)));
        print("topic_reassigned", TopicZNode.path("t"), TopicZNode.encode(new Some<>(id), map(assignment)));
        Map<TopicPartition, ReplicaAssignment> many = new LinkedHashMap<>();
        for (int partition = 0; partition < 24; partition++)
            many.put(new TopicPartition("t", partition), new ReplicaAssignment(ints(partition % 3), ints(), ints()));
        print("topic_24", TopicZNode.path("t"), TopicZNode.encode(new Some<>(id), map(many)));

        TopicPartition first = new TopicPartition("t", 0);
        LeaderAndIsr state = LeaderAndIsr.apply(1, 3, ints(1, 2), LeaderRecoveryState.RECOVERED, 5);
        print("state", TopicPartitionStateZNode.path(first),
            TopicPartitionStateZNode.encode(new LeaderIsrAndControllerEpoch(state, 4)));
        LeaderAndIsr recovering = LeaderAndIsr.apply(1, 3, ints(1), LeaderRecoveryState.RECOVERING, 5);
        print("state_recovering", TopicPartitionStateZNode.path(first),
            TopicPartitionStateZNode.encode(new LeaderIsrAndControllerEpoch(recovering, 4)));

        Properties config = new Properties();
        config.setProperty("retention.ms", "1000");
        print("config", ConfigEntityZNode.path("topics", "t"), ConfigEntityZNode.encode(config));
        print("config_empty", ConfigEntityZNode.path("users", "<default>"), ConfigEntityZNode.encode(new Properties()));
        Properties two = new Properties();
        two.setProperty("x", "quote\" back\\slash tab\t \u00e9 \u20ac \ud83d\ude00 \u007f </script> \u0001 \u2028");
        print("config_escapes", ConfigEntityZNode.path("topics", "t"), ConfigEntityZNode.encode(two));
        Properties several = new Properties();
        for (String key : "retention.ms cleanup.policy segment.bytes min.insync.replicas".split(" "))
            several.setProperty(key, "1");
        print("config_several", ConfigEntityZNode.path("topics", "t"), ConfigEntityZNode.encode(several));
        print("config_change", ConfigEntityChangeNotificationSequenceZNode.createPath(),
            ConfigEntityChangeNotificationSequenceZNode.encode("topics/t"));
        print("config_change_user", ConfigEntityChangeNotificationSequenceZNode.createPath(),
            ConfigEntityChangeNotificationSequenceZNode.encode("users/alice/clients/<default>"));

        Set<TopicPartition> partitions = set(Arrays.asList(first, new TopicPartition("t", 1)));
        print("isr_change", IsrChangeNotificationSequenceZNode.path(""), IsrChangeNotificationSequenceZNode.encode(partitions));
        print("log_dir_event", LogDirEventNotificationSequenceZNode.path(""), LogDirEventNotificationSequenceZNode.encode(2));
        Map<TopicPartition, scala.collection.Seq<Object>> reassignment = new LinkedHashMap<>();
        reassignment.put(first, ints(1, 2));
        print("reassign", ReassignPartitionsZNode.path(), ReassignPartitionsZNode.encode(map(reassignment)));
        print("preferred", PreferredReplicaElectionZNode.path(), PreferredReplicaElectionZNode.encode(partitions));
        print("delete_topic", DeleteTopicsTopicZNode.path("t"), null);
        print("seqid", BrokerSequenceIdZNode.path(), null);
        print("producer_id_block", ProducerIdBlockZNode.path(),
            ProducerIdBlockZNode.generateProducerIdBlockJson(new ProducerIdsBlock(1, 1000L, 1000)));
        Map<String, Object> finalized = new LinkedHashMap<>();
        print("feature_disabled", FeatureZNode.path(), FeatureZNode.encode(
            FeatureZNode.apply(2, FeatureZNodeStatus.withNameOpt(0).get(), map(finalized))));
        finalized.put("transaction.version", (short) 2);
        print("feature", FeatureZNode.path(), FeatureZNode.encode(
            FeatureZNode.apply(2, FeatureZNodeStatus.withNameOpt(1).get(), map(finalized))));
        print("feature_v1", FeatureZNode.path(), FeatureZNode.encode(
            FeatureZNode.apply(1, FeatureZNodeStatus.withNameOpt(1).get(), map(finalized))));

        AclEntry alice = new AclEntry(
            new AccessControlEntry("User:alice", "*", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.ALLOW));
        ResourcePattern literal = new ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL);
        ResourcePattern prefixed = new ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t-", PatternType.PREFIXED);
        Set<AclEntry> acls = set(Collections.singletonList(alice));
        print("acl", ResourceZNode.path(literal), ResourceZNode.encode(acls));
        print("acl_prefixed", ResourceZNode.path(prefixed), ResourceZNode.encode(acls));
        ResourcePattern cluster = new ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL);
        print("acl_cluster", ResourceZNode.path(cluster), ResourceZNode.encode(acls));
        ResourcePattern token = new ResourcePattern(ResourceType.DELEGATION_TOKEN, "x", PatternType.LITERAL);
        for (ResourcePattern pattern : Arrays.asList(literal, cluster, token, prefixed)) {
            AclChangeNode change = ZkAclStore.apply(pattern.patternType()).changeStore().createChangeNode(pattern);
            print("acl_change_" + pattern.resourceType().name().toLowerCase(), change.path(), change.bytes());
        }
        KafkaPrincipal owner = new KafkaPrincipal("User", "alice");
        TokenInformation information = new TokenInformation("id-1", owner, owner,
            Collections.singletonList(new KafkaPrincipal("User", "bob")), 1L, 3L, 2L);
        print("delegation_token", DelegationTokenInfoZNode.path("id-1"), DelegationTokenInfoZNode.encode(information));
        TokenInformation requested = new TokenInformation("id-1", owner, new KafkaPrincipal("User", "carol"),
            Collections.<KafkaPrincipal>emptyList(), 1L, 3L, 2L);
        print("delegation_token_requester", DelegationTokenInfoZNode.path("id-1"), DelegationTokenInfoZNode.encode(requested));
        print("token_change", DelegationTokenChangeNotificationSequenceZNode.createPath(),
            DelegationTokenChangeNotificationSequenceZNode.encode("id-1"));
        print("consumer_offset", ConsumerOffset.path("g", "t", 3), ConsumerOffset.encode(42L));
        for (String path : JavaConverters.asJavaIterable(ZkData.PersistentZkPaths()))
            print("persistent", path, null);
        for (String path : JavaConverters.asJavaIterable(ZkData.SecureRootPaths()))
            print("secure", path, null);
        for (String path : JavaConverters.asJavaIterable(ZkData.SensitiveRootPaths()))
            print("sensitive", path, null);
        PATHS.addAll(List.of("/", "/config/usersX", "/config/brokers/0", "/config/ips/127.0.0.1", "/brokers/ids/0/x"));
        for (String path : PATHS) {
            List<String> parts = new ArrayList<>();
            for (ACL one : JavaConverters.asJavaIterable(ZkData.defaultAcls(true, path)))
                parts.add(one.getPerms() + " " + one.getId().getScheme() + " " + one.getId().getId());
            System.out.println("znode_acl\t" + path + "\t" + String.join(", ", parts));
        }
    }
}
