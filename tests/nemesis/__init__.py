"""Three brokers and three ZooKeeper servers as real processes, each on a network of its own, under load and faults.

`python -m tests.nemesis --minutes 10 --seed 1 [--system apache_kafka]` kills, stops, cuts off and breaks the disks of
them while producers and consumers of two kinds run, and then says whether anything was lost, doubled, changed or
skipped (`checker`), and for how long each partition took no records (`availability`). `history.jsonl` has every single
thing that a client did or was told.

Everything runs inside process, mount and network namespaces that the kernel ends with the command, however it ends:
nothing is left on the machine that a next start would have to clean up.
"""
