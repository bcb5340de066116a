"""Real clients against a fleet of three: librdkafka, kafka-python, aiokafka, kcat, the Java client and Kafka's tools.

What every client has to do alike stands in `test_every_client.py`, `test_codecs.py` and `test_failures.py`, which speak
to them through one interface (`driver.py`) and its five implementations; what only one client offers stands in the
file named after it.
"""
