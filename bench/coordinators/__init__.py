"""Transactions and consumer groups beside Apache Kafka: the load is what their coordinators do."""
