#!/usr/bin/env bash
# Builds the container image and runs it as Kubernetes would: as its own user on a read-only root, with no capability or
# with NET_BIND_SERVICE alone, names looked up as in a pod, as process 1 through restarts, a crash and SIGTERM.
#
#   run.sh                builds first, which takes 10 to 20 minutes the first time
#   IMAGE=NAME run.sh     takes an image that is there
#   BUILD_FLAGS="…"       further arguments of `podman build`, such as --build-arg PROFILE=release
#
# Needs root, podman with runc or crun, iproute2, curl, openssl, python3 and dnsmasq. All of it happens in a network
# namespace of its own, every wait has an end, and nothing is left behind but the image.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
[ "$(id -u)" = 0 ] || { echo "error: needs root, for network namespaces" >&2; exit 2; }
for tool in podman ip curl openssl python3 dnsmasq; do
    command -v "$tool" >/dev/null || { echo "error: needs $tool" >&2; exit 2; }
done

dir=$(mktemp -d)
name=portcullis-image-$$
helpers=()
mounted=
cleanup() {
    local code=$?
    trap - EXIT INT TERM
    if [ "$code" != 0 ]; then
        for log in "$dir"/*.log; do echo "== $log"; tail -n 40 "$log"; done >&2
        podman logs "$name" >&2 2>/dev/null || true
    fi
    podman rm --force --time 0 "$name" >/dev/null 2>&1 || true
    [ ! -e "$dir/runtime" ] || "$runtime" --root "$dir/runtime" delete --force "$name" >/dev/null 2>&1 || true
    for pid in "${helpers[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    if [ -n "$mounted" ]; then podman rm --force "$mounted" >/dev/null 2>&1 || true; fi
    ip netns del "$name" 2>/dev/null || true
    rm -rf "$dir"
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step() { printf '\n== %s\n' "$1"; }
fail() { echo "error: $1" >&2; exit 1; }
eventually() { # what, command…: until the command succeeds, for a minute
    local what=$1
    shift
    for _ in $(seq 120); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.5
    done
    fail "not within a minute: $what"
}
inside() { ip netns exec "$name" "$@"; }
get() { inside curl --silent --show-error --fail --max-time 20 "$@"; }

if [ -z "${IMAGE:-}" ]; then
    step "build"
    IMAGE=localhost/portcullis:image-test
    # shellcheck disable=SC2086 # several flags
    podman build ${BUILD_FLAGS:-} -f "$root/Containerfile" -t "$IMAGE" "$root"
fi

step "what is in it"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
user=$(podman image inspect --format '{{.Config.User}}' "$IMAGE")
[ "$user" = 65532:65532 ] || fail "user $user"
mounted=$(podman create "$IMAGE")
rootfs=$(podman mount "$mounted")
content=$(cd "$rootfs" && find . -type f -size +0)
[ "$content" = ./usr/bin/portcullis ] || fail "more or less than the program: $content"
echo "$(stat -c %s "$rootfs/usr/bin/portcullis") bytes in one file"
told=$(podman run --rm --network none --read-only --read-only-tmpfs=false --cap-drop all "$IMAGE" --version)
[ "$told" = "portcullis $version" ] || fail "it says it is $told"

step "a network, with a backend and a DNS server"
ip netns add "$name"
inside ip link set lo up
mkdir -m 755 "$dir/manifests" "$dir/settings" "$dir/site"
cat > "$dir/backend.py" <<'END'
import http.server, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            time.sleep(4)
        body = ("backend of " + self.headers["host"].split(":")[0]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
END
# By their own process ids, which those of a shell function would not be.
ip netns exec "$name" python3 "$dir/backend.py" > "$dir/backend.log" 2>&1 & helpers+=($!)
ip netns exec "$name" dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --pid-file --user=root --log-facility=- \
    --log-queries --listen-address=127.0.0.1 --bind-interfaces \
    --address=/backend.cluster.test/127.0.0.1 --address=/absolute.test/127.0.0.1 --local=/test/ \
    > "$dir/dns.log" 2>&1 & helpers+=($!)
eventually "the backend" get http://127.0.0.1:9000/

# Names: by DNS as it is, by DNS with a search domain as pods have them, by /etc/hosts, and one that nobody knows.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=image-test \
    -addext "subjectAltName=DNS:*.example.test" -keyout "$dir/manifests/site.key" -out "$dir/manifests/site.crt" 2>/dev/null
names="absolute.test backend in-hosts.test unknown.test"
for target in $names; do
    host=${target%.test}
    cat <<END
---
apiVersion: v1
kind: Service
metadata: { name: $host, namespace: default }
spec: { type: ExternalName, externalName: $target, ports: [{ port: 9000 }] }
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: { name: $host, namespace: default }
spec:
  rules:
  - host: $host.example.test
    http: { paths: [{ path: /, pathType: Prefix, backend: { service: { name: $host, port: { number: 9000 } } } }] }
END
done > "$dir/manifests/site.yaml"
settings() { echo "workers: $1" > "$dir/settings/.new" && mv "$dir/settings/.new" "$dir/settings/settings.yaml"; }
settings 1
# As a Secret's volume has them.
chmod 644 "$dir"/manifests/* "$dir"/settings/*

volumes=(-v "$dir/manifests:/etc/portcullis/manifests:ro" -v "$dir/settings:/etc/portcullis/settings:ro")
# An emptyDir can be written by everybody; nothing else can be.
hardened=(--read-only --read-only-tmpfs=false --cap-drop all --security-opt no-new-privileges
    --tmpfs /var/lib/portcullis:rw,mode=0777 --network "ns:/run/netns/$name")
site() { # host, path, port
    get --cacert "$dir/manifests/site.crt" --resolve "$1:$3:127.0.0.1" "https://$1:$3$2"
}

step "check"
podman run --rm --network none "${volumes[@]}" "$IMAGE" check /etc/portcullis/manifests \
    --settings /etc/portcullis/settings/settings.yaml

step "serve, without any privilege"
podman run --detach --name "$name" "${hardened[@]}" "${volumes[@]}" \
    --dns 127.0.0.1 --dns-search cluster.test --dns-option ndots:5 --add-host in-hosts.test:127.0.0.1 \
    "$IMAGE" serve --settings=/etc/portcullis/settings/settings.yaml --manifests=/etc/portcullis/manifests \
    "--admin-bind-address=::" --state-dir=/var/lib/portcullis > /dev/null
eventually "readyz" get http://127.0.0.1:10254/readyz
get http://127.0.0.1:10254/healthz >/dev/null
main=$(podman inspect --format '{{.State.Pid}}' "$name")
privileges=$(sed -n 's/^Cap\(Prm\|Eff\|Amb\):\t//p' "/proc/$main/status" | sort -u)
[ "$privileges" = 0000000000000000 ] || fail "privileges: $privileges"
for host in absolute backend in-hosts; do
    answer=$(site "$host.example.test" / 8443)
    [ "$answer" = "backend of $host.example.test" ] || fail "$host: $answer"
    echo "$host: $answer"
done
code=$(inside curl --silent --max-time 20 --output /dev/null --write-out '%{http_code}' --cacert "$dir/manifests/site.crt" \
    --resolve unknown.example.test:8443:127.0.0.1 https://unknown.example.test:8443/ || true)
[ "$code" = 502 ] || [ "$code" = 503 ] || fail "a name that nobody knows is answered with $code"
grep -q "query\[A\] backend.cluster.test" "$dir/dns.log" || fail "the search domain was not asked for"

step "ask it"
podman exec "$name" portcullis status
podman exec "$name" portcullis certs
podman exec "$name" portcullis certs --output json | grep -q 'example.test' || fail "the certificate is not listed"

children() { cat "/proc/$main/task/$main/children"; }
generation() { get http://127.0.0.1:10254/api/v1/status | python3 -c '
import json, sys
generations = json.load(sys.stdin)["generations"]
print(generations[0]["pid"] if len(generations) == 1 and generations[0]["state"] == "serving" else "several")'; }
another() { local now; now=$(generation) && [ "$now" != "$1" ] && [ "$now" != several ]; }
alone() { [ "$(children | wc -w)" = 1 ]; } # one generation and no zombie

step "a restart inside, and a crash"
before=$(generation)
settings 2
eventually "a new generation" another "$before"
eventually "the old generation is gone and reaped" alone
site backend.example.test / 8443 > /dev/null
before=$(generation)
kill -KILL "$(children)"
eventually "a generation in place of the one that crashed" another "$before"
eventually "the crashed generation is reaped" alone
site backend.example.test / 8443 > /dev/null

step "SIGTERM, with a request under way"
site backend.example.test /slow 8443 > "$dir/slow.txt" & slow=$!
eventually "the request" bash -c "ip netns exec $name ss -Htn state established 'dport = :9000' | grep -q ."
podman stop --time 40 "$name" > /dev/null
wait "$slow" || fail "the request under way was lost"
grep -q "backend of" "$dir/slow.txt" || fail "half an answer"
code=$(podman inspect --format '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || fail "exit code $code"
podman rm "$name" > /dev/null

# podman makes added capabilities ambient, which the runtimes of Kubernetes do not: there they are permitted and
# effective up to the start of the program, which another user than root only keeps by what is in the program's file.
step "ports 80 and 443, as Kubernetes grants them"
runtime=$(podman info --format '{{.Host.OCIRuntime.Path}}')
bundle() { # capability or nothing
    rm -rf "$dir/bundle"
    mkdir -p "$dir/bundle"
    (cd "$dir/bundle" && "$runtime" spec)
    python3 - "$dir" "$rootfs" "$name" "$1" <<'END'
import json, sys
folder, rootfs, name, capability = sys.argv[1:]
path = folder + "/bundle/config.json"
spec = json.load(open(path))
granted = [capability] if capability else []
spec["root"] = {"path": rootfs, "readonly": True}
spec["process"].update(
    terminal=False, noNewPrivileges=True, user={"uid": 65532, "gid": 65532},
    capabilities={"bounding": granted, "effective": granted, "permitted": granted},
    args=["/usr/bin/portcullis", "serve", "--manifests=/etc/portcullis/manifests", "--http-port=80", "--https-port=443", "--workers=1"])
spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != "/sys/fs/cgroup"]
spec["mounts"].append({"destination": "/etc/portcullis/manifests", "type": "bind", "source": folder + "/manifests", "options": ["bind", "ro"]})
for namespace in spec["linux"]["namespaces"]:
    if namespace["type"] == "network":
        namespace["path"] = "/run/netns/" + name
json.dump(spec, open(path, "w"))
END
}
oci() { "$runtime" --root "$dir/runtime" "$@"; }
bundle CAP_NET_BIND_SERVICE
oci run --bundle "$dir/bundle" "$name" > "$dir/low-ports.log" 2>&1 & low=$!
eventually "readyz" get http://127.0.0.1:10254/readyz
get --resolve none.example.test:80:127.0.0.1 --output /dev/null --no-fail --write-out 'port 80: %{http_code}\n' http://none.example.test/
inside bash -c 'echo | openssl s_client -connect 127.0.0.1:443 -servername a.example.test 2>/dev/null' | grep -q image-test ||
    fail "no certificate at port 443"
echo "port 443: the certificate"
oci kill "$name" TERM
wait "$low" || fail "exit code $?"
bundle ""
code=0
timeout 60 "$runtime" --root "$dir/runtime" run --bundle "$dir/bundle" "$name" > "$dir/refused.log" 2>&1 || code=$?
[ "$code" = 1 ] && grep -q "Permission denied" "$dir/refused.log" || fail "without the capability: exit code $code"
grep "Permission denied" "$dir/refused.log" | head -n 1

plane=${CARGO_TARGET_DIR:-$root/target}/controlplane/bin
if [ -x "$plane/kube-apiserver" ]; then
    step "in a cluster, with the arguments of config/kubernetes and the token of its Service Account"
    ip netns exec "$name" "$root/e2e/controlplane/start.sh" "$dir/plane" > "$dir/plane.log" 2>&1 & helpers+=($!)
    eventually "the API server" grep -q ^ready "$dir/plane.log"
    kubectl() { inside "$plane/kubectl" --kubeconfig "$dir/plane/admin.kubeconfig" "$@"; }
    kubectl apply -k "$root/config/kubernetes" > /dev/null
    kubectl create secret tls site --cert "$dir/manifests/site.crt" --key "$dir/manifests/site.key" > /dev/null
    kubectl create ingress site --class=portcullis --rule="a.example.test/*=none:80,tls=site" > /dev/null
    mkdir -m 755 "$dir/account"
    eventually "the Service Account" kubectl -n portcullis get serviceaccount portcullis
    kubectl -n portcullis create token portcullis > "$dir/account/token"
    cp "$dir/plane/ca.crt" "$dir/account/ca.crt"
    printf portcullis > "$dir/account/namespace"
    chown -R 65532:65532 "$dir/account"
    chmod 600 "$dir/account/token"
    mapfile -t arguments < <(kubectl -n portcullis get deployment portcullis \
        -o 'jsonpath={range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
    server=$(kubectl config view -o 'jsonpath={.clusters[0].cluster.server}')
    podman run --detach --name "$name" "${hardened[@]}" -v "$dir/account:/var/run/secrets/kubernetes.io/serviceaccount:ro" \
        --env KUBERNETES_SERVICE_HOST=127.0.0.1 --env "KUBERNETES_SERVICE_PORT=${server##*:}" \
        --env POD_NAME=portcullis-0 --env POD_NAMESPACE=portcullis "$IMAGE" "${arguments[@]}" > /dev/null
    eventually "readyz" get http://127.0.0.1:10254/readyz
    podman exec "$name" portcullis certs
    inside bash -c 'echo | openssl s_client -connect 127.0.0.1:8443 -servername a.example.test 2>/dev/null' |
        grep -q image-test || fail "not the certificate of the Secret"
    podman stop --time 20 "$name" > /dev/null
    code=$(podman inspect --format '{{.State.ExitCode}}' "$name")
    [ "$code" = 0 ] || fail "exit code $code"
    podman rm "$name" > /dev/null
else
    step "in a cluster: left out, run e2e/controlplane/build.sh for it"
fi

step "the CA"
podman run --detach --name "$name" "${hardened[@]}" "$IMAGE" ca serve --state-dir=/var/lib/portcullis \
    --grpc-address=127.0.0.1:8060 --admin-address=127.0.0.1:15014 > /dev/null
eventually "healthz of the CA" get http://127.0.0.1:15014/healthz
podman exec "$name" portcullis ca show --state-dir=/var/lib/portcullis
podman stop --time 20 "$name" > /dev/null
code=$(podman inspect --format '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || fail "exit code $code"

step "all of it works"
