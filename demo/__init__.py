"""`make demo`: the main job on real input, from the README's own documents.

A fleet comes up, the 336 776 flights that left New York in 2013 go through a real client into a topic declared as a
KafkaTopic, the leader of the busiest partition is killed in the middle, and every record is read back and compared.
In a second act Spark reads the topic: the README's own example.
"""
