"""Fits a small model with parameter servers. Addresses come from the barrier: FB_{ROLE}_ADDRESSES."""

import json
import os

roles = ("chief", "ps", "worker")
role, index = os.environ["FC_TASKROLE_NAME"], int(os.environ["FC_TASK_INDEX"])
cluster = {name: os.environ[f"FB_{name.upper()}_ADDRESSES"].split(",") for name in roles}
# TensorFlow reads it when it is asked for the cluster.
os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})

import tensorflow as tf  # noqa: E402

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if role != "chief":
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=role, task_index=index, protocol="grpc")
    server.join()  # until the end of the attempt stops this Pod


def points(context):
    """An endless stream of points of a noisy line, another one on each worker."""
    generator = tf.random.Generator.from_seed(context.input_pipeline_id)

    def point(_):
        x = generator.uniform([1], -1.0, 1.0)
        return x, 3.0 * x + 1.0 + generator.normal([1], stddev=0.1)

    return tf.data.Dataset.range(1).repeat().map(point).batch(64)


strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=20)
model.fit(tf.keras.utils.experimental.DatasetCreator(points), epochs=5, steps_per_epoch=100, verbose=2)
print([weight.numpy().tolist() for weight in model.weights])
