#!/usr/bin/env bash
# install-packages.sh WHO [PACKAGE...]: installs Debian packages, as root; otherwise one line of WHO names them. Nothing
# to do without packages.
set -euo pipefail
who=$1
shift
[ $# -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "$who: missing Debian packages, to be installed as root: apt-get install $*" >&2
  exit 1
fi
echo "$who: installing $*"
export DEBIAN_FRONTEND=noninteractive
# A new machine may be at its own updates still: their locks are waited for. `update` waits for none, so it is tried again.
options=(-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
for attempt in 1 2 3; do
  # Lists that cannot be fetched (another repository of this machine, say) are no reason to stop: the old ones may do.
  apt-get update "${options[@]}" > /dev/null || echo "$who: apt-get update had errors, see above" >&2
  if apt-get install -y --no-install-recommends "${options[@]}" "$@" > /dev/null; then exit 0; fi
  [ "$attempt" = 3 ] || sleep 10
done
echo "$who: apt-get could not install $*" >&2
exit 1
