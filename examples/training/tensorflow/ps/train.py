"""Fits a line with parameter servers: they hold the variables, and the chief schedules steps on the workers."""

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    cluster = resolver.cluster_spec()
    server = tf.distribute.Server(cluster, job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc")
    server.join()  # until the end of the attempt stops this Pod

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    slope, offset = tf.Variable(0.0), tf.Variable(0.0)


@tf.function
def step():
    """A step of gradient descent, on some worker."""
    x = tf.random.uniform([64], -1.0, 1.0)
    y = 3.0 * x + 1.0 + tf.random.normal([64], stddev=0.1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((slope * x + offset - y) ** 2)
    for variable, gradient in zip((slope, offset), tape.gradient(loss, (slope, offset)), strict=True):
        variable.assign_sub(0.1 * gradient)


for _ in range(500):
    coordinator.schedule(step)
coordinator.join()
print(f"y = {slope.numpy():.2f} x + {offset.numpy():.2f}")
