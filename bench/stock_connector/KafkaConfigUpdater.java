package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.Tuple2;

/**
 * Stands in for a class of the artefact spark-token-provider-kafka-0-10, which only delegation tokens need and which is
 * not part of this measurement: collects a client's configuration and adds no authentication.
 */
public class KafkaConfigUpdater {
  private final Map<String, Object> collected = new HashMap<>();

  public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
    for (scala.collection.Iterator<Tuple2<String, Object>> all = given.iterator(); all.hasNext(); ) {
      Tuple2<String, Object> entry = all.next();
      collected.put(entry._1(), entry._2());
    }
  }

  public KafkaConfigUpdater set(String key, Object value) {
    collected.put(key, value);
    return this;
  }

  public KafkaConfigUpdater setIfUnset(String key, Object value) {
    collected.putIfAbsent(key, value);
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> cluster) {
    return this;
  }

  public Map<String, Object> build() {
    return collected;
  }
}
