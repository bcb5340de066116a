"""Passwords as Apache Kafka stores them in /config/brokers: encrypted, with everything but the secret beside them.

    initializationVector:…,keyLength:128,salt:…,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,
    cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:8,encryptedPassword:…

Binary values are in Base64. The key of the cipher is derived from `password.encoder.secret` by PBKDF2. What is read
says by itself how it was made, so the other keys of `password.encoder.*` only decide how the next one is.

Source: org.apache.kafka.security.EncryptingPasswordEncoder, IvParamsEncoder, GcmParamsEncoder (KIP-226).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field

_FACTORIES = {f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in ("1", "224", "256", "384", "512")}
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_FACTORY = "PBKDF2WithHmacSHA512"
KEY_FACTORIES, CIPHERS, KEY_LENGTHS = tuple(_FACTORIES), (_CBC, _GCM), (128, 192, 256)
_SALT_BYTES = 256
_TAG_BYTES = 16
_MOST_ITERATIONS = 10_000_000
"""What is stored names its iterations: nobody waits for more than seconds."""


class PasswordError(ValueError):
    """An encoded password that cannot be decoded. The message has no part of it."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """See the module.

    Args:
        secret: password.encoder.secret.
        old_secret: password.encoder.old.secret; decodes what `secret` does not.
        key_length: in bits.
    """

    secret: str = field(repr=False)
    old_secret: str | None = field(default=None, repr=False)
    cipher: str = _CBC
    key_factory: str = KEY_FACTORY
    key_length: int = 128
    iterations: int = 4096

    def encode(self, password: str) -> str:
        """Takes milliseconds, by the number of iterations."""
        salt = os.urandom(_SALT_BYTES)
        key = _derive(self.secret, salt, self.key_factory, self.iterations, self.key_length)
        vector = os.urandom(12 if self.cipher == _GCM else 16)
        parts = {
            "initializationVector": _text(vector),
            "keyLength": str(self.key_length),
            "salt": _text(salt),
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "iterations": str(self.iterations),
            "passwordLength": str(len(password)),
            "encryptedPassword": _text(_encrypt(self.cipher, key, vector, password.encode())),
        }
        if self.cipher == _GCM:
            parts["authenticationTagLength"] = str(8 * _TAG_BYTES)
        return ",".join(f"{name}:{value}" for name, value in parts.items())

    def decode(self, encoded: str) -> str:
        """Takes milliseconds, as `encode`. Raises PasswordError."""
        try:
            return _decode(self.secret, encoded)
        except PasswordError:
            if self.old_secret is None:
                raise
            return _decode(self.old_secret, encoded)

    def is_current(self, encoded: str) -> bool:
        """Whether `secret` decodes it. Takes milliseconds."""
        try:
            _decode(self.secret, encoded)
        except PasswordError:
            return False
        return True


def _decode(secret: str, encoded: str) -> str:
    parts = dict(part.split(":", 1) for part in encoded.split(",") if ":" in part)
    try:
        cipher, factory = parts["cipherAlgorithm"], parts["keyFactoryAlgorithm"]
        key_length, iterations, length = (int(parts[name]) for name in ("keyLength", "iterations", "passwordLength"))
        salt, vector, encrypted = (
            base64.b64decode(parts[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
    except (KeyError, ValueError, binascii.Error):
        raise PasswordError("it is no encoded password") from None
    if cipher not in CIPHERS or factory not in _FACTORIES or key_length not in KEY_LENGTHS:
        raise PasswordError(
            f"it is encoded with {cipher}, {factory} and a key of {key_length} bits, which are not served"
        )
    if not 1 <= iterations <= _MOST_ITERATIONS:
        raise PasswordError(f"it is encoded with {iterations} iterations; 1 to {_MOST_ITERATIONS} are served")
    try:
        password = _decrypt(cipher, _derive(secret, salt, factory, iterations, key_length), vector, encrypted).decode()
    except Exception:
        password = ""
    if not password or len(password) != length:
        raise PasswordError("it was encoded with another password.encoder.secret")
    return password


def _derive(secret: str, salt: bytes, factory: str, iterations: int, key_length: int) -> bytes:
    return hashlib.pbkdf2_hmac(_FACTORIES[factory], secret.encode(), salt, iterations, key_length // 8)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == _GCM:
        return AESGCM(key).encrypt(vector, data, None)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def _decrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == _GCM:
        return AESGCM(key).decrypt(vector, data, None)
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    unpadder = PKCS7(128).unpadder()
    return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()
