"""`make demo`: the main job on real input, with the documents of the README.

It starts a fleet, produces the 336 776 flights that left New York in 2013 with a real client into a topic declared as a
KafkaTopic, kills the leader of a partition meanwhile, reads every record back and compares it. Then Spark, where it is
installed, reads the topic with the example of the README.
"""
