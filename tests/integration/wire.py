"""A client of plain sockets and the product's codec, for requests that no client library sends."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.records.record import build_batch, build_records
from ottla_broker.security.sasl.mechanism import PLAIN, Challenge, ClientMechanism
from ottla_broker.security.sasl.plain import PlainClient
from ottla_broker.security.sasl.scram import SaltedPasswords, ScramAlgorithm, ScramClient


class Wire:
    """One connection. Every call has a limit of 60 s, so that a broker that never answers fails the test."""

    def __init__(
        self,
        address: str,
        *,
        client_id: str = "wire",
        receive_buffer: int = 0,
        source: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`source`: the address of this machine that it connects from."""
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect((host, int(port)))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._client_id = client_id
        self._correlation_id = 0

    def log_in(self, mechanism: str, user: str, password: str, *, is_token: bool = False) -> int:
        """By SASL; fails the test when the broker refuses it. Gives the lifetime of the session, 0 for ever.

        Args:
            is_token: the user is the id of a delegation token, the password its hmac in Base64.
        """
        client: ClientMechanism = PlainClient(user, password)
        if mechanism != PLAIN:
            client = ScramClient(ScramAlgorithm(mechanism), user, SaltedPasswords(password), is_token=is_token)
        return self.log_in_by(mechanism, client)

    def log_in_by(self, mechanism: str, client: ClientMechanism) -> int:
        """With this side of an exchange; else as `log_in`."""
        request = codec.module(ApiKey.SASL_HANDSHAKE).SaslHandshakeRequest(mechanism=mechanism)
        answer = self.ask(ApiKey.SASL_HANDSHAKE, 1, request)
        token = b""
        while answer.error_code == 0 and isinstance(step := client.step(token), Challenge):
            request = codec.module(ApiKey.SASL_AUTHENTICATE).SaslAuthenticateRequest(auth_bytes=step.token)
            answer = self.ask(ApiKey.SASL_AUTHENTICATE, 1, request)
            token = bytes(answer.auth_bytes)
        assert answer.error_code == 0, answer
        return int(answer.session_lifetime_ms)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request_bytes(self, api_key: ApiKey, version: int, request: Any) -> bytes:
        """A whole frame, with the next correlation id."""
        self._correlation_id += 1
        chunks = codec.frame_request(api_key, version, self._correlation_id, self._client_id, request)
        return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]

    def ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        """Sends a request and gives its decoded answer."""
        self.send(self.request_bytes(api_key, version, request))
        return self.answer(api_key, version)

    def answer(self, api_key: ApiKey, version: int) -> Any:
        frame = self.frame()
        assert frame is not None, "the broker closed the connection"
        _correlation_id, response = codec.read_response_frame(api_key, version, memoryview(frame))
        return response

    def frame(self) -> bytes | None:
        """The next whole frame without its length; None when the broker has closed the connection."""
        head = self._exactly(4)
        if head is None:
            return None
        return self._exactly(struct.unpack(">i", head)[0])

    def is_closed_by_broker(self) -> bool:
        """Reads until the broker's end; True when it came without another frame."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data


def batch(*values: bytes, **fields: Any) -> bytearray:
    """A format-2 batch of values without keys."""
    return build_batch(build_records([(None, value) for value in values], timestamp=1_700_000_000_000), **fields)


def produce_request(topic: str, records: bytes | bytearray, *, partition: int = 0, acks: int = -1) -> Any:
    api = codec.module(ApiKey.PRODUCE)
    return api.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            api.TopicProduceData(
                name=topic, partition_data=[api.PartitionProduceData(index=partition, records=bytes(records))]
            )
        ],
    )


def create_topic(address: str, name: str, *, partitions: int = 1, replicas: int = 1, **configs: str) -> None:
    """Creates a topic at a broker that is the controller, and fails the test when it is refused."""
    api = codec.module(ApiKey.CREATE_TOPICS)
    with Wire(address) as wire:
        response = wire.ask(
            ApiKey.CREATE_TOPICS,
            7,
            api.CreateTopicsRequest(
                topics=[
                    api.CreatableTopic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=replicas,
                        configs=[
                            api.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                            for key, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=50_000,
            ),
        )
    assert response.topics[0].error_code == 0, response.topics[0].error_message


def fleet_named_by(address: str) -> tuple[int, set[int]]:
    """(controller, brokers) in the Metadata of this one broker; (-1, none) while it does not listen or has not heard.

    Apache Kafka listens before its controller has told it of anybody, and names nobody until then: librdkafka, which
    hears of the controller once, waits for one for a minute when that was its first answer. The others list it by then.
    """
    api = codec.module(ApiKey.METADATA)
    try:
        with Wire(address) as wire:
            wire.send(wire.request_bytes(ApiKey.METADATA, 9, api.MetadataRequest(topics=[])))
            frame = wire.frame()
    except ConnectionError:
        frame = None
    if frame is None:
        return -1, set()
    _, found = codec.read_response_frame(ApiKey.METADATA, 9, memoryview(frame))
    return found.controller_id, {broker.node_id for broker in found.brokers}
