# Lyceum in a container, as an account without rights: for one person, or for a few who trust
# each other, because all of them then work as that one account. A machine room installs the
# binary on the machine itself. Both, and how to run this image as root: docs/install.md.
#
#   portal      the program, compiled here (the default)
#   prebuilt    the same around a program that lies beside this file as `lyceum`
#   directory   the sample directory of docker-compose.yml

ARG BASE=docker.io/library/debian:bookworm-slim
ARG RUST=docker.io/library/rust:1.95-bookworm

FROM ${BASE} AS base
# More Debian packages for those who work here, for instance "git r-base-core r-cran-irkernel".
ARG EXTRA=""
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
      ca-certificates python3 python3-venv tini ${EXTRA} >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --create-home --shell /bin/bash lyceum \
 && install -d -o lyceum -g lyceum -m 700 /var/lib/lyceum
ENV LYCEUM_DATA=/var/lib/lyceum
VOLUME ["/var/lib/lyceum", "/home"]
EXPOSE 8000 8001
USER lyceum
WORKDIR /home/lyceum
HEALTHCHECK --interval=10s --timeout=6s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=5)"]
# tini reaps what sessions leave behind, and passes signals on.
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/lyceum"]
CMD ["serve"]

FROM ${BASE} AS directory
RUN apt-get -qq update \
 && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install slapd openssl >/dev/null \
 && rm -rf /var/lib/apt/lists/* \
 && install -d -o openldap -g openldap -m 700 /var/lib/directory \
 && install -d -o openldap -g openldap -m 755 /authority
COPY contrib/compose/slapd.conf contrib/compose/people.ldif /etc/directory/
COPY contrib/compose/start-directory /usr/local/bin/start-directory
VOLUME ["/var/lib/directory", "/authority"]
EXPOSE 1389
USER openldap
HEALTHCHECK --interval=3s --retries=20 CMD ["/usr/local/bin/start-directory", "--is-up"]
CMD ["/usr/local/bin/start-directory"]

FROM base AS prebuilt
COPY lyceum /usr/local/bin/lyceum

FROM ${RUST} AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --profile dist --locked && install -D target/dist/lyceum /out/lyceum

FROM base AS portal
COPY --from=build /out/lyceum /usr/local/bin/lyceum
