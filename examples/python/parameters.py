"""Keep a parameter and serve it (serve HOST), or fit one on each server (train HOST:PORT,...): y = 3x."""

import random
import sys
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

weights = [0.0]


def push(gradient):
    weights[0] -= 0.02 * gradient
    return weights[0]


if sys.argv[1] == "serve":
    server = SimpleXMLRPCServer((sys.argv[2], 8000), logRequests=False)
    server.register_function(push)
    server.serve_forever()
for address in sys.argv[2].split(","):
    server = ServerProxy(f"http://{address}")
    weight = server.push(0)
    for _ in range(100):
        x = random.uniform(1, 2)
        weight = server.push(2 * x * (weight * x - 3 * x))
    print(f"{address}: y = {weight:.1f} x")
