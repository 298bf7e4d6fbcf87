#!/usr/bin/env bash
# Prepares a control plane in DIR without starting it: keys, kubeconfigs, and one script for each process that
# runs it in the foreground. Whoever starts them can kill and start each again on the same ports and data.
#
#   init.sh DIR        DIR/etcd.sh, DIR/kube-apiserver.sh, DIR/kube-controller-manager.sh (where it was built),
#                      DIR/admin.kubeconfig, DIR/bin (the programs, kubectl among them)
#
# The programs come from $KUBEBUILDER_ASSETS where it is set, else from build.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "usage: $0 DIR" >&2; exit 2; }
mkdir -p "$1"
dir=$(realpath "$1")
bin=${KUBEBUILDER_ASSETS:-$(realpath -m "${CARGO_TARGET_DIR:-$here/../../target}/controlplane/bin")}
[ -x "$bin/kube-apiserver" ] || { echo "no kube-apiserver in $bin: run e2e/controlplane/build.sh" >&2; exit 1; }
ln -sfn "$bin" "$dir/bin"

free_port() {
    local port
    while port=$((20000 + RANDOM % 10000)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}
etcd=$(free_port) peer=$(free_port) secure=$(free_port)

# Keys. ECDSA, since RSA keys take a second each.
cd "$dir"
key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
key ca.key
openssl req -x509 -new -key ca.key -subj /CN=test-ca -days 30 -out ca.crt
issue() { # name, subject, extensions
    key "$1.key"
    openssl req -new -key "$1.key" -subj "$2" |
        openssl x509 -req -CA ca.crt -CAkey ca.key -days 30 -extfile <(echo "$3") -out "$1.crt" 2>/dev/null
}
issue apiserver /CN=kube-apiserver "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc"
issue admin /O=system:masters/CN=admin "extendedKeyUsage=clientAuth"
key sa.key
openssl ec -in sa.key -pubout -out sa.pub 2>/dev/null

cat > admin.kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$secure", certificate-authority: $dir/ca.crt}}]
users: [{name: admin, user: {client-certificate: $dir/admin.crt, client-key: $dir/admin.key}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
END

script() { # name, command line
    printf '#!/bin/sh\nexec %s "$@"\n' "$2" > "$1.sh"
    chmod +x "$1.sh"
}
url=http://127.0.0.1:$etcd
script etcd "$bin/etcd --data-dir=$dir/etcd --log-level=error --unsafe-no-fsync \
    --listen-client-urls=$url --advertise-client-urls=$url \
    --listen-peer-urls=http://127.0.0.1:$peer --initial-advertise-peer-urls=http://127.0.0.1:$peer \
    --initial-cluster=default=http://127.0.0.1:$peer"
# A watch that is open would hold up the end for a minute; ServiceAccount admission needs the controller manager.
script kube-apiserver "$bin/kube-apiserver --etcd-servers=$url --bind-address=127.0.0.1 --secure-port=$secure \
    --advertise-address=10.77.0.1 --endpoint-reconciler-type=none --cert-dir=$dir/certs \
    --tls-cert-file=$dir/apiserver.crt --tls-private-key-file=$dir/apiserver.key --client-ca-file=$dir/ca.crt \
    --authorization-mode=RBAC --anonymous-auth=false \
    --service-account-issuer=https://kubernetes.default.svc --api-audiences=https://kubernetes.default.svc \
    --service-account-key-file=$dir/sa.pub --service-account-signing-key-file=$dir/sa.key \
    --service-cluster-ip-range=10.96.0.0/16 --disable-admission-plugins=ServiceAccount \
    --allow-privileged=true --profiling=false --shutdown-watch-termination-grace-period=1s"
if [ -x "$bin/kube-controller-manager" ]; then
    script kube-controller-manager "$bin/kube-controller-manager --kubeconfig=$dir/admin.kubeconfig \
        --leader-elect=false --bind-address=127.0.0.1 --secure-port=0 --concurrent-gc-syncs=2 \
        --root-ca-file=$dir/ca.crt --controllers=deployment-controller,replicaset-controller,endpointslice-controller,namespace-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller"
fi
