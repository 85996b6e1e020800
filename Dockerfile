# syntax=docker/dockerfile:1
# Lyceum in a container: one person's portal, or a small group's that trust each other,
# because all sessions run inside this one container. A machine room installs the binary on
# the machine itself (docs/install.md).

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked && install -D target/release/lyceum /out/lyceum

FROM docker.io/library/debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git procps python3 python3-venv r-base-core r-cran-irkernel tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/lyceum /usr/local/bin/lyceum

# Started as root, so that each person's sessions run as an account of their own (`ly-NAME`).
# These accounts live in the container's /etc and go with it: docs/install.md.
VOLUME ["/var/lib/lyceum", "/home"]
EXPOSE 8000 8001
# tini reaps what sessions leave behind, and passes signals on.
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/lyceum"]
CMD ["serve"]
