"""Each API without each right that it needs, asked of one broker of ours and one of Apache Kafka 3.9.1.

A super user makes the topics, groups and transactions that the requests are about (`world`); somebody whose name is in
a certificate asks, first without any right, then with each right but one, then with all. `rows` says what a row of the
tables is; the tables are `of_topics`, `of_groups`, `of_transactions`, `of_cluster` and `of_brokers`. `matrix` asks, and
`deliberate` lists where ours answers otherwise and why. `python -m tests.beside security` runs it all.
"""
