# A container image for GPU clusters: the tarball of scripts/package.sh on Debian, with the libraries that NCCL needs for InfiniBand. The
# host provides the driver (NVIDIA's container toolkit).
#
#   scripts/package.sh build/package
#   docker build --build-arg TARBALL=build/package/tessera-0.1.0-x86_64.tar.gz -t tessera .
#   docker run --gpus all --ipc host --user "$(id -u):$(id -g)" -v "$PWD:/work" tessera trainer --config shapes_sparc
#
# A tarball made with --torch cpu gives an image for CPUs.
FROM debian:12-slim

# Debian's mirrors keep only the newest versions, so versions cannot be pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ibverbs-providers libcurl4 libibverbs1 librdmacm1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*

ARG TARBALL
# ADD unpacks the tarball.
# hadolint ignore=DL3020
ADD ${TARBALL} /opt/
# The dry run checks that LibTorch can be loaded; --version would not load it.
RUN mv /opt/tessera-* /opt/tessera \
    && /opt/tessera/bin/trainer --config shapes_clip --dry-run

ENV PATH=/opt/tessera/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /work
CMD ["trainer", "--help"]
