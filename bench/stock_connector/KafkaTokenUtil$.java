package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** Stands in as KafkaConfigUpdater does: no cluster has tokens, so none is ever out of date. */
public class KafkaTokenUtil$ {
  public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

  public Option<?> findMatchingTokenClusterConfig(SparkConf configuration, String bootstrap) {
    return Option.empty();
  }

  public boolean needTokenUpdate(Map<String, Object> parameters, Option<?> cluster) {
    return false;
  }
}
