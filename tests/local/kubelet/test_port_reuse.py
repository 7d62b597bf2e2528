"""A port that an earlier gang has just closed is not handed out."""

from __future__ import annotations

import socket

from airflow_kftrain.local.kubelet.ports import PortBlocks


def test_a_port_in_time_wait_is_not_free_for_a_server_that_binds_strictly() -> None:
    blocks = PortBlocks()
    try:
        port = blocks.take()
        server = socket.create_server(("127.0.0.1", port))
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the port in TIME_WAIT
        assert client.recv(1) == b""
        client.close()
        server.close()
        blocks.give_back(port)
        taken = {blocks.take() for _ in range(400)}
        assert port not in taken
        strict = socket.socket()
        strict.bind(("", next(iter(taken))))
        strict.close()
    finally:
        blocks.close()
