# Two images: `frameworkcontroller`, and `frameworkbarrier`, an init container (docs/barrier.md).
#
#   docker build --target frameworkcontroller --tag frameworkcontroller:0.1.0 .
#   docker build --target frameworkbarrier    --tag frameworkbarrier:0.1.0 .
#
# Paths, working directories and start.sh equal the original images, because existing manifests depend on them.
# Python packages are pinned by hash in requirements*.lock, and bytecode has no time stamps. For a reproducible image, pin
# the base by digest: --build-arg BASE=debian@sha256:…

ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS runtime
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 \
 && rm -rf /var/lib/apt/lists/* /var/log/* /var/cache/debconf/*-old \
 && groupadd --gid 65532 nonroot \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin nonroot


FROM runtime AS dependencies
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=315532800
# Dependencies before the source, so that a change of the source keeps this layer cached.
COPY requirements.lock requirements-build.lock ./
RUN python3 -m venv /build \
 && /build/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements-build.lock \
 && python3 -m venv --without-pip /opt/frameworkcontroller/venv \
 && /build/bin/pip --python /opt/frameworkcontroller/venv/bin/python install --quiet --require-hashes --only-binary :all: --requirement requirements.lock


FROM dependencies AS builder
COPY pyproject.toml README.md LICENSE ./
COPY crd crd
COPY manifests manifests
COPY scripts/build-barrier scripts/build-barrier
# Without frameworkcontroller/local, the embedded cluster: see .dockerignore.
COPY frameworkcontroller frameworkcontroller
RUN /build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . \
 && /build/bin/pip --python /opt/frameworkcontroller/venv/bin/python install --quiet --no-deps --root /package dist/*.whl \
 && /opt/frameworkcontroller/venv/bin/python scripts/build-barrier dist/frameworkbarrier


FROM runtime AS frameworkbarrier
# One file that needs only Python: other images copy it from this one.
COPY --chmod=755 --from=builder /src/dist/frameworkbarrier /opt/frameworkcontroller/frameworkbarrier/frameworkbarrier
COPY --chmod=755 image/frameworkbarrier/start.sh /opt/frameworkcontroller/frameworkbarrier/start.sh
# Output directory for Pods without a volume there.
RUN install --directory --owner=65532 --group=65532 /mnt/frameworkbarrier
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /opt/frameworkcontroller/frameworkbarrier
USER 65532:65532
ENTRYPOINT ["./start.sh"]


# Last, so that it is the default target.
FROM runtime AS frameworkcontroller
# Two layers: a change of the source leaves the large one as it is.
COPY --from=dependencies /opt/frameworkcontroller/venv /opt/frameworkcontroller/venv
COPY --from=builder /package /
COPY --chmod=755 image/frameworkcontroller/start.sh /opt/frameworkcontroller/frameworkcontroller/start.sh
# The default configuration. Any user may overwrite it with a mounted one (`cp … . && ./start.sh`).
COPY --chmod=666 frameworkcontroller/config/default-config.yaml /opt/frameworkcontroller/frameworkcontroller/frameworkcontroller.yaml
RUN ln -s /opt/frameworkcontroller/venv/bin/frameworkcontroller /opt/frameworkcontroller/venv/bin/kubectl-framework /usr/local/bin/
ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /opt/frameworkcontroller/frameworkcontroller
USER 65532:65532
ENTRYPOINT ["./start.sh"]
