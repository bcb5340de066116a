#!/usr/bin/env bash
# Installs the Debian packages that `make e2e` needs beside Go, Java and Maven: a container runtime, network plugins and
# what builds images without a daemon. Only what is missing, only as root on Debian; otherwise one line names it. Nothing
# is started by the installation.
set -euo pipefail

packages=()
need() { command -v "$1" > /dev/null || packages+=("$2"); } # command, Debian package
need containerd containerd
need runc runc
[ -x /usr/lib/cni/bridge ] || packages+=(containernetworking-plugins)
need iptables iptables
need ip iproute2
need conntrack conntrack
need socat socat
need buildah buildah
need mmdebstrap mmdebstrap
need openssl openssl
need gcc gcc
need nsenter util-linux
[ -e /usr/include/stdio.h ] || packages+=(libc6-dev)
[ ${#packages[@]} -gt 0 ] || exit 0

policy=/usr/sbin/policy-rc.d # while it says 101, no package starts a daemon
if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null && [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' > "$policy"
  chmod +x "$policy"
fi
"$(dirname "$0")/install-packages.sh" install-kubernetes "${packages[@]}"
