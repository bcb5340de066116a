"""Why a handshake has failed, in a word for metrics and a sentence for people: of brokers, and of their clients."""

from __future__ import annotations

import ssl

_ADVICE = {
    "tlsv13_alert_certificate_required": "the broker asks for a certificate: name a key store",
    "certificate_required": "the broker asks for a certificate: name a key store",
    "tlsv1_alert_unknown_ca": "the broker does not trust the authority of the certificate in the key store",
    "unknown_ca": "the broker does not trust the authority of the certificate in the key store",
    "wrong_version_number": "the listener does not speak TLS: use its port for SSL, or security.protocol=PLAINTEXT",
    "closed": "the broker has closed the connection: if its listener is plain, use security.protocol=PLAINTEXT",
}
"""What a user of a client can do, by the word."""


def reason_of_failure(error: OSError) -> tuple[str, str]:
    """Why a handshake failed: a word for metrics, and a sentence.

    OpenSSL's reasons are a closed set of words, such as CERTIFICATE_VERIFY_FAILED and NO_SHARED_CIPHER.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate_verify_failed", f"the peer's certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "closed", "the peer has closed"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower(), error.reason.lower().replace("_", " ")
    return "other", error.strerror or type(error).__name__


def told_to_user(error: OSError) -> str:
    """What failed in a handshake that a client has begun, and what to do where that is known."""
    if isinstance(error, TimeoutError):
        return "it is not complete in time"
    code, sentence = reason_of_failure(error)
    advice = _ADVICE.get(code, "")
    if code == "certificate_verify_failed":
        advice = "look at the trust store (ssl.truststore.location, ssl.ca.location) and at the names of the brokers"
    return f"{sentence} ({advice})" if advice else sentence
