"""Try twenty learning rates for ten steps, and the best three for a hundred more."""

import asyncio

import frameworkcontroller as fc


def fit(rate, weight, steps):
    for _ in range(steps):
        weight -= rate * 2 * (weight - 3)
    return {"rate": rate, "weight": weight, "loss": (weight - 3) ** 2}


async def trial(cluster, *args):
    job = fc.function(fit, args=args, image="python:3.12-slim", labels={"sweep": "rates"})
    async with await cluster.submit(job) as run:
        return (await run.result()).value


async def main():
    async with fc.aio.connect() as cluster:
        found = await asyncio.gather(*(trial(cluster, n / 1000, 0, 10) for n in range(1, 21)))
        best = sorted(found, key=lambda one: one["loss"])[:3]
        print(*await asyncio.gather(*(trial(cluster, one["rate"], one["weight"], 100) for one in best)), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
