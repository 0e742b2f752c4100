"""The model that train.py trains: whether a point is in the circle.

Two inputs, eight hidden units, one output: 33 parameters in one list. Autograd computes the gradient, or without
PyTorch, plain Python; both are equal.
"""

import math
import random

try:
    import torch
except ImportError:
    torch = None

HIDDEN, BATCH = 8, 64
SIZE = 4 * HIDDEN + 1


def batch(step):
    """The points of a step, the same for every caller."""
    rng = random.Random(step)
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(BATCH)]
    return [(x, y, float(x * x + y * y < 0.5)) for x, y in points]


def gradient_by_hand(parameters, points):
    """The sum of the points' losses, and its gradient."""
    *units, bias = parameters
    units = [units[4 * i : 4 * i + 4] for i in range(HIDDEN)]
    loss, gradient = 0.0, [0.0] * SIZE
    for x, y, wanted in points:
        hidden = [math.tanh(a * x + b * y + c) for a, b, c, _ in units]
        score = sum(unit[3] * value for unit, value in zip(units, hidden, strict=True)) + bias
        loss += max(score, 0) - score * wanted + math.log1p(math.exp(-abs(score)))
        error = 1 / (1 + math.exp(-score)) - wanted
        gradient[-1] += error
        for i, value in enumerate(hidden):
            back = error * units[i][3] * (1 - value * value)
            for j, slope in enumerate((back * x, back * y, back, error * value)):
                gradient[4 * i + j] += slope
    return loss, gradient


def gradient_by_torch(parameters, points):
    vector = torch.tensor(parameters, dtype=torch.float64, requires_grad=True)
    data = torch.tensor(points, dtype=torch.float64).reshape(-1, 3)
    units = vector[:-1].reshape(HIDDEN, 4)
    score = torch.tanh(data[:, :2] @ units[:, :2].T + units[:, 2]) @ units[:, 3] + vector[-1]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(score, data[:, 2], reduction="sum")
    loss.backward()
    return loss.item(), vector.grad.tolist()


gradient = gradient_by_torch if torch else gradient_by_hand
