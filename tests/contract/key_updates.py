"""A client that updates the keys of TLS 1.3 until it is closed: PORT ASKS (1: each asks for one back) [FIRST, in hex].

Python's ssl cannot; this calls OpenSSL. Ends with status 0 when the server has closed the connection.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import socket
import sys

_POINTER = ctypes.c_void_p


def main() -> None:
    library = ctypes.CDLL(ctypes.util.find_library("ssl") or "libssl.so.3")
    for name, result, arguments in (
        ("TLS_client_method", _POINTER, []),
        ("SSL_CTX_new", _POINTER, [_POINTER]),
        ("SSL_new", _POINTER, [_POINTER]),
        ("SSL_set_fd", ctypes.c_int, [_POINTER, ctypes.c_int]),
        ("SSL_connect", ctypes.c_int, [_POINTER]),
        ("SSL_key_update", ctypes.c_int, [_POINTER, ctypes.c_int]),
        ("SSL_do_handshake", ctypes.c_int, [_POINTER]),
        ("SSL_write", ctypes.c_int, [_POINTER, ctypes.c_char_p, ctypes.c_int]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    ssl = library.SSL_new(library.SSL_CTX_new(library.TLS_client_method()))
    library.SSL_set_fd(ssl, connection.fileno())
    if library.SSL_connect(ssl) != 1:
        sys.exit("no handshake")
    print("connected", flush=True)
    for first in map(bytes.fromhex, sys.argv[3:]):
        library.SSL_write(ssl, first, len(first))
    while library.SSL_key_update(ssl, int(sys.argv[2])) == 1 and library.SSL_do_handshake(ssl) == 1:
        pass


if __name__ == "__main__":
    main()
