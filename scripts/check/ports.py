"""TCP ports for the servers that tests start."""
import contextlib
import random
import socket


def free_ports(count, also=0):
    """Returns numbers of free ports of the loopback; with `also`, the ports that are so much higher are free, too. Other programs that take
    just any port cannot take these in the meantime, because the kernel gives them ports from 32768 on."""
    found = []
    for port in random.SystemRandom().sample(range(12000, 20000), 8000):
        with contextlib.suppress(OSError):
            for each in {port, port + also}:
                socket.create_server(("127.0.0.1", each)).close()
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no port from 12000 to 19999 is free")
