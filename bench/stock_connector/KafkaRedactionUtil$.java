package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Stands in as KafkaConfigUpdater does: there are no secrets to hide. */
public class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  public Seq<?> redactParams(Seq<?> parameters) {
    return parameters;
  }
}
