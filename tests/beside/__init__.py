"""One broker of ours and one of Apache Kafka 3.9.1, asked the same random questions: the same answers, byte for byte.

`python -m tests.beside` asks as many as it is told, `test_beside.py` some; `python -m tests.beside configs` sets every
configuration key instead, and `python -m tests.beside security` asks each API without each right. `requests` draws the
random questions, `comparison` asks both and says where the answers differ; what is left out, and why, stands at
`Requests` and `UNLIKE` there.
"""
