#!/usr/bin/env bash
# Builds Helm, from the version in go.mod, into target/helm/helm: tests render the chart with it. Takes minutes the
# first time; afterwards nothing, as long as go.mod and go.sum stay as they are. Needs Go 1.26.
set -euo pipefail
cd "$(dirname "$0")"
target="${CARGO_TARGET_DIR:-$PWD/../../target}/helm"
key=$(cat go.mod go.sum | sha256sum | cut -c 1-16)
binary="$target/helm-$key"
if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "error: building Helm needs Go 1.26 (https://go.dev/dl)" >&2; exit 1; }
    mkdir -p "$target"
    echo "building Helm (the first time takes minutes) …" >&2
    CGO_ENABLED=0 go build -trimpath -p 2 -ldflags "-s -w" -o "$binary.new" helm.sh/helm/v4/cmd/helm
    mv "$binary.new" "$binary"
    find "$target" -maxdepth 1 -name 'helm-*' ! -name "helm-$key" -delete
fi
ln -sfn "helm-$key" "$target/helm"
realpath "$target/helm"
