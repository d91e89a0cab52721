# The images divvy-node, divvy-webhook and divvy-mps. hack/image makes the same without a container daemon.
#   docker build --target divvy-node -t divvy-node:0.1.0 .
#   docker build --target divvy-webhook -t divvy-webhook:0.1.0 .
#   docker build --target divvy-mps -t divvy-mps:0.1.0 .
# Base images may come from elsewhere, by --build-arg or --build-context. All have to be of one Debian release, so that the
# programs find the glibc they were linked against.
ARG RUST_IMAGE=rust:1.95-trixie
ARG BASE_IMAGE=debian:trixie-slim
ARG NONROOT_IMAGE=gcr.io/distroless/cc-debian13:nonroot

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# The daemon is built for size, as it runs on every node: profile `node`. The caches belong to the builder and not to a layer,
# so the programs are copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --profile node --package divvy-node --bins && \
    cargo build --locked --profile dist --package divvy-mps --package divvy-webhook --bins && \
    cp target/node/divvy-node target/dist/divvy-mps target/dist/divvy-webhook / && \
    cp "$(hack/libdivvy)" /libdivvy.so

FROM ${NONROOT_IMAGE} AS divvy-webhook
COPY --from=build /divvy-webhook /usr/bin/divvy-webhook
# By its number, so that the kubelet can tell that it isn't root.
USER 65532:65532
ENTRYPOINT ["/usr/bin/divvy-webhook"]

FROM ${BASE_IMAGE} AS node
# One arena, and large blocks given back at once: 2 MiB less on every node.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072

FROM node AS divvy-mps
COPY --from=build /divvy-mps /usr/bin/divvy-mps
# No USER: it mounts, changes compute modes, and has the driver's root as its programs' root.
ENTRYPOINT ["/usr/bin/divvy-mps"]

FROM node AS divvy-node
COPY --from=build /divvy-node /usr/bin/divvy-node
# Where the daemon looks for it, to copy it to stateDir: containers get it from there.
COPY --from=build /libdivvy.so /usr/lib/divvy/libdivvy.so
# No USER: the kubelet's plugin directory, its sockets and /var/lib/divvy are root's. Which rights are needed beside that is
# said in deploy/manifests/node-daemonset.yaml. The root may be read-only.
ENTRYPOINT ["/usr/bin/divvy-node"]
