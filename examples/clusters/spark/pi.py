"""Estimates pi by random points, which the workers draw."""

import random
import socket

from pyspark.sql import SparkSession

PARTS, POINTS = 20, 100_000


def hits(part):
    """Where this part was drawn, and how many of its points of the unit square are in the circle."""
    draw = random.Random(part)
    return socket.gethostname(), sum(draw.random() ** 2 + draw.random() ** 2 < 1 for _ in range(POINTS))


session = SparkSession.builder.getOrCreate()
drawn = session.sparkContext.parallelize(range(PARTS), PARTS).map(hits).collect()
print(f"drawn by {', '.join(sorted({host for host, _ in drawn}))}")
print(f"pi is about {4 * sum(count for _, count in drawn) / (PARTS * POINTS):.2f}")
