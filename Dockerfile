# An image for GPU clusters: the tarball of scripts/package.sh on Debian, with what NCCL needs for InfiniBand. The driver comes from the
# machine (NVIDIA's container toolkit).
#
#   scripts/package.sh build/package
#   docker build --build-arg TARBALL=build/package/tessera-0.1.0-x86_64.tar.gz -t tessera .
#   docker run --gpus all --ipc host --user "$(id -u):$(id -g)" -v "$PWD:/work" tessera trainer --config shapes_sparc
#
# A tarball of --torch cpu makes an image for CPUs.
FROM debian:12-slim

# Debian's mirrors keep the newest versions alone, so that none can be named.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ibverbs-providers libibverbs1 librdmacm1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*

ARG TARBALL
# ADD unpacks.
# hadolint ignore=DL3020
ADD ${TARBALL} /opt/
RUN mv /opt/tessera-* /opt/tessera \
    && /opt/tessera/bin/trainer --version

ENV PATH=/opt/tessera/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /work
CMD ["trainer", "--help"]
