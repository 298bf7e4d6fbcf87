#!/usr/bin/env bash
# Runs a control plane in the foreground until it is interrupted: etcd, kube-apiserver with RBAC, and the
# controllers of Deployments, EndpointSlices, namespaces and garbage. No kubelet: a Pod never starts.
#
#   start.sh [DIR]     prints the line "ready KUBECONFIG" when it serves; logs and data stay in DIR, which is a
#                      new folder that is removed at the end where none is given
#
# No kube-proxy either: ClusterIPs lead nowhere, EndpointSlices refuse loopback addresses. To give endpoints
# addresses that exist only here:
#   unshare --net bash -c 'ip link set lo up; ip route add local 10.77.0.0/16 dev lo; exec …/start.sh'
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -gt 0 ]; then dir=$1; else dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT; fi
"$here/init.sh" "$dir"

pids=()
stop() { # In order: an API server that loses its etcd first may never end.
    trap - INT TERM
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        kill "${pids[i]}" 2>/dev/null || continue
        for _ in $(seq 100); do kill -0 "${pids[i]}" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "${pids[i]}" 2>/dev/null || true
    done
    exit "${1:-0}"
}
trap 'stop 0' INT TERM
run() { "$dir/$1.sh" > "$dir/$1.log" 2>&1 & pids+=($!); }

run etcd
run kube-apiserver
kubectl() { "$dir/bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" "$@"; }
for attempt in $(seq 600); do
    kubectl get --raw /readyz >/dev/null 2>&1 && break
    kill -0 "${pids[1]}" 2>/dev/null || { tail -n 20 "$dir/kube-apiserver.log" >&2; stop 1; }
    [ "$attempt" -lt 600 ] || { echo "error: not ready after a minute; see $dir/kube-apiserver.log" >&2; stop 1; }
    sleep 0.1
done
[ ! -x "$dir/kube-controller-manager.sh" ] || run kube-controller-manager
echo "ready $(realpath "$dir")/admin.kubeconfig"
wait -n "${pids[@]}" || true
echo "error: a part of the control plane ended; see $dir/*.log" >&2
stop 1
