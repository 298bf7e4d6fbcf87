#!/usr/bin/env bash
# Builds the control plane that tests run against into target/controlplane/bin: etcd, kube-apiserver,
# kube-controller-manager and kubectl, which are links to one file. Takes six minutes and 2 GB the first time;
# afterwards nothing, as long as main.go, go.mod and go.sum stay as they are. Needs Go 1.26: built with 1.27
# the API server's OpenAPI document is broken, and `kubectl apply` with it.
set -euo pipefail
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../../target}/controlplane"
version=$(sed -n 's/^require k8s.io\/kubernetes v//p; s/^\tk8s.io\/kubernetes v//p' go.mod | head -n 1)
key=$(cat main.go go.mod go.sum | sha256sum | cut -c 1-16)
binary="$target/kubelite-$key"

if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "error: building the control plane needs Go 1.26 (https://go.dev/dl)" >&2; exit 1; }
    case $(go env GOVERSION) in
        go1.26*) ;;
        *) echo "error: building the control plane needs Go 1.26, this is $(go env GOVERSION)" >&2; exit 1 ;;
    esac
    mkdir -p "$target"
    echo "building Kubernetes v$version (about 2,800 packages; the first time takes minutes) …" >&2
    started=$SECONDS
    minor=${version#*.} minor=${minor%%.*}
    flags="-s -w"
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
    done
    CGO_ENABLED=0 go build -trimpath -p 2 -ldflags "$flags" -o "$binary.new" .
    mv "$binary.new" "$binary"
    find "$target" -maxdepth 1 -name 'kubelite-*' ! -name "kubelite-$key" -delete
    echo "built in $((SECONDS - started)) s" >&2
fi
mkdir -p "$target/bin"
for name in etcd kube-apiserver kube-controller-manager kubectl; do
    ln -sfn "../kubelite-$key" "$target/bin/$name"
done
realpath "$target/bin"
