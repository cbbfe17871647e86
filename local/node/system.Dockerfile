# One image with all programs of the cluster's own pods, because every cluster runs all of them:
# `pause` for the pods' sandboxes, the DNS server, and the volume provisioner with a shell for its
# helper pods.
FROM debian:trixie-slim AS tools
RUN apt-get update \
    && apt-get install --yes --no-install-recommends busybox-static gcc libc6-dev \
    && apt-get clean \
    && rm -rf /var/lib/apt/lists/*
COPY pause.c /
RUN gcc -Os -Wall -Wextra -Werror -static -s -o /pause /pause.c \
    && mkdir -p /root-fs/bin /root-fs/etc /root-fs/tmp \
    && cp /bin/busybox /root-fs/bin/ \
    && for applet in $(/bin/busybox --list); do ln -s busybox /root-fs/bin/$applet; done

FROM scratch
COPY --from=tools /root-fs /
COPY --from=tools /pause /pause
COPY coredns local-path-provisioner /bin/
ENTRYPOINT ["/pause"]
