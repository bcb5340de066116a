#!/usr/bin/env bash
# Builds the programs of the e2e cluster (Kubernetes, etcd, CoreDNS, helm) from Go modules, once, and prints their folder.
# The folder's name holds what they are built from, so another version is another folder. Ten minutes of two cores the
# first time; needs Go and the Go module proxy, nothing else.
set -euo pipefail
cd "$(dirname "$0")/../e2e/kubernetes"
helm_version=v4.3.1
key=$(cat go.mod go.sum main.go coredns/main.go <(echo "$helm_version") | sha256sum | cut -c1-10)
version=$(sed -n 's|^\tk8s.io/kubernetes v||p' go.mod)
folder=${OTTLA_CACHE:-$HOME/.cache/ottla}/kubernetes/$version-$key
if [ ! -e "$folder/helm" ]; then
  mkdir -p "$(dirname "$folder")"
  exec 9> "$(dirname "$folder")/.build.lock"
  flock 9 # another one that is under way is waited for
fi
go() { # a proxy of modules has its bad moments; what is fetched and compiled already is not done again
  local attempt
  for attempt in 1 2 3; do
    if command go "$@"; then return; fi
    [ "$attempt" = 3 ] || sleep 5
  done
  return 1
}
if [ ! -e "$folder/helm" ]; then
  type -P go > /dev/null || { echo "build-kubernetes: Go is missing (https://go.dev/dl, or the golang package)" >&2; exit 1; }
  export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"
  IFS=. read -r major minor _ <<< "$version"
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  done
  rm -rf "$folder.partial" "$folder"; mkdir -p "$folder.partial"
  # The small ones first: what they compile, the large one needs too.
  echo "build-kubernetes: etcd, CoreDNS and helm" >&2
  go build -ldflags "-s -w" -o "$folder.partial/etcd" go.etcd.io/etcd/server/v3 >&2
  go build -ldflags "-s -w" -o "$folder.partial/coredns" ./coredns >&2
  GOBIN=$folder.partial go install -ldflags "-s -w" "helm.sh/helm/v4/cmd/helm@$helm_version" >&2
  echo "build-kubernetes: Kubernetes $version, about ten minutes on two cores" >&2
  go build -ldflags "$flags" -o "$folder.partial/kubernetes" . >&2
  for name in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
    ln -sf kubernetes "$folder.partial/$name"
  done
  mv "$folder.partial" "$folder"
fi
echo "$folder"
