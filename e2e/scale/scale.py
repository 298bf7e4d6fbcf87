#!/usr/bin/env python3
"""The gateway in a large cluster: 10,000 TLS Secrets with 10,000 Ingresses, and 200 releases of Helm of 900 KB each.

    e2e/controlplane/build.sh
    cargo build --release
    e2e/scale/scale.py target/release/portcullis

Starts a control plane of its own (e2e/controlplane/init.sh), fills it, runs the gateway against it through a relay
that counts bytes, and measures. Prints a table and exits with 1 where a limit is missed. Takes minutes, most of them to
fill etcd, and about 3 GB of memory for the API server. Needs openssl and Python 3.9; everything it starts ends with it.
"""

import argparse
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import queue
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMESPACES = 20
RELEASE_BYTES = 900_000


class Api:
    """The API server as the administrator sees it. One connection for each thread."""

    def __init__(self, folder):
        config = (folder / "admin.kubeconfig").read_text()
        self.port = int(config.split("https://127.0.0.1:")[1].split('"')[0])
        self.context = ssl.create_default_context(cafile=folder / "ca.crt")
        self.context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        self.local = threading.local()

    def request(self, method, path, body=None, content_type="application/json"):
        for attempt in range(5):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=60)
                self.local.connection = connection
            try:
                data = None if body is None else json.dumps(body)
                connection.request(method, path, data, {"content-type": content_type})
                response = connection.getresponse()
                text = response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                continue
            if response.status == 429:
                time.sleep(1)
                continue
            if response.status >= 300 and response.status != 409:
                raise SystemExit(f"error: {method} {path}: {response.status} {text[:300]!r}")
            return json.loads(text) if text else None
        raise SystemExit(f"error: {method} {path}: no answer")

    def is_ready(self):
        try:
            self.request("GET", "/readyz")
            return True
        except (SystemExit, ValueError):
            # "ok" is no JSON, and an answer.
            return not isinstance(sys.exc_info()[1], SystemExit)


class Relay:
    """Passes TCP on to the API server, and counts what comes back."""

    def __init__(self, port):
        self.target, self.received = port, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.relay, args=(client,), daemon=True).start()

    def relay(self, client):
        # Either side may break off, as both do when the measurement is over.
        with contextlib.suppress(ConnectionError):
            with client, socket.create_connection(("127.0.0.1", self.target)) as server:
                while True:
                    for source in select.select([client, server], [], [])[0]:
                        data = source.recv(1 << 18)
                        if not data:
                            return
                        if source is server:
                            self.received += len(data)
                        (client if source is server else server).sendall(data)


class Gateway:
    """The gateway under test, told apart into its supervisor and the worker that serves."""

    def __init__(self, binary, kubeconfig, folder):
        self.http, self.https, self.admin = free_ports(3)
        self.log = open(folder / "gateway.log", "w")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [binary, "serve", "--source=kubernetes", "--workers=1", "--bind-address=127.0.0.1",
             f"--kubeconfig={kubeconfig}", f"--http-port={self.http}", f"--https-port={self.https}",
             f"--admin-port={self.admin}"],
            stdout=self.log, stderr=self.log, env={**os.environ, "PORTCULLIS_SECRET_GRACE_PERIOD": "1s"})

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()

    def wait_until_ready(self, limit):
        while time.monotonic() - self.started < limit:
            try:
                if self.get("/readyz")[0] == 200:
                    return time.monotonic() - self.started
            except OSError:
                pass
            time.sleep(0.02)
        raise SystemExit(f"error: not ready after {limit} s; the log is in {self.log.name}")

    def worker(self):
        return json.loads(self.get("/api/v1/status")[1])["pid"]

    def certificates(self):
        return len(json.loads(self.get("/api/v1/certificates")[1])["certificates"])

    def resident(self, key="VmRSS"):
        for line in pathlib.Path(f"/proc/{self.worker()}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) / 1024
        raise SystemExit(f"error: no {key}")

    def cpu(self, pid):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def serial(self, host):
        """The serial number of the certificate that a client is shown."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.https), timeout=10) as tcp:
            with context.wrap_socket(tcp, server_hostname=host) as tls:
                return tls.getpeercert(binary_form=True)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Control:
    """etcd and kube-apiserver, and a kubeconfig for clients that come through a relay."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        subprocess.run([ROOT / "e2e/controlplane/init.sh", folder], check=True)
        for name in ("etcd", "kube-apiserver"):
            log = open(folder / f"{name}.log", "w")
            command = [folder / f"{name}.sh"]
            if name == "etcd":
                command.append("--quota-backend-bytes=8589934592")
            else:
                command += ["--max-requests-inflight=1000", "--max-mutating-requests-inflight=500"]
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        self.api = Api(folder)
        deadline = time.monotonic() + 120
        while not self.api.is_ready():
            if time.monotonic() > deadline:
                raise SystemExit(f"error: the API server is not ready; see {folder}")
            time.sleep(0.2)
        self.relay = Relay(self.api.port)
        config = (folder / "admin.kubeconfig").read_text()
        self.kubeconfig = folder / "relay.kubeconfig"
        self.kubeconfig.write_text(config.replace(f":{self.api.port}", f":{self.relay.port}"))

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


class Authority:
    """Issues certificates by openssl, which is quick enough in a few processes."""

    def __init__(self, folder):
        self.folder = folder / "certificates"
        self.folder.mkdir()
        self.run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
        self.run("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=scale", "-days", "30", "-out", "ca.crt")

    def run(self, *arguments, **options):
        return subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, **options)

    def issue(self, host):
        key = self.run("ecparam", "-name", "prime256v1", "-genkey", "-noout").stdout
        request = ["req", "-x509", "-new", "-key", "/dev/stdin", "-subj", f"/CN={host}", "-days", "30",
                   "-CA", "ca.crt", "-CAkey", "ca.key", "-addext", f"subjectAltName=DNS:{host}"]
        return self.run(*request, input=key).stdout, key


def place(index):
    return f"scale{index % NAMESPACES}", f"site{index}", f"site{index}.scale.example.com"


def secret(namespace, name, pair):
    data = {"tls.crt": base64.b64encode(pair[0]).decode(), "tls.key": base64.b64encode(pair[1]).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"namespace": namespace, "name": name}, "data": data}


def ingress(namespace, name, host):
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ingressClassName": "portcullis", "tls": [{"hosts": [host], "secretName": name}],
                     "rules": [rule]}}


def fill(control, authority, hosts, releases, pool):
    api = control.api
    api.request("POST", "/apis/networking.k8s.io/v1/ingressclasses",
                {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "portcullis"},
                 "spec": {"controller": "portcullis.dev/ingress-controller"}})
    for number in range(NAMESPACES):
        name = f"scale{number}"
        api.request("POST", "/api/v1/namespaces",
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        api.request("POST", f"/api/v1/namespaces/{name}/services",
                    {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": name, "name": "web"},
                     "spec": {"ports": [{"port": 80}]}})

    def site(index):
        namespace, name, host = place(index)
        api.request("POST", f"/api/v1/namespaces/{namespace}/secrets",
                    secret(namespace, name, authority.issue(host)))
        api.request("POST", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses",
                    ingress(namespace, name, host))

    def release(index):
        namespace = f"scale{index % NAMESPACES}"
        data = base64.b64encode(os.urandom(RELEASE_BYTES)).decode()
        api.request("POST", f"/api/v1/namespaces/{namespace}/secrets",
                    {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
                     "metadata": {"namespace": namespace, "name": f"sh.helm.release.v1.app{index}.v1"},
                     "data": {"release": data}})

    for work, count, what in ((site, hosts, "hosts"), (release, releases, "releases")):
        for done, _ in enumerate(pool.map(work, range(count)), 1):
            if done % 1000 == 0 or done == count:
                print(f"  {done} {what}", file=sys.stderr)


def rotate(control, index, pair):
    namespace, name, _ = place(index)
    patch = {"data": secret(namespace, name, pair)["data"]}
    control.api.request("PATCH", f"/api/v1/namespaces/{namespace}/secrets/{name}", patch,
                        "application/merge-patch+json")


def der(pair):
    return ssl.PEM_cert_to_DER_cert(pair[0].decode())


class Report:
    def __init__(self):
        self.missed = False

    def line(self, what, value, unit, limit=None):
        good = limit is None or value <= limit
        self.missed |= not good
        bound = "" if limit is None else f"(limit {limit:g} {unit})"
        print(f"{what:<58} {value:>10.2f} {unit:<6} {bound} {'' if good else 'MISSED'}", flush=True)


def resident_when_empty(arguments, control, folder):
    gateway = Gateway(arguments.binary, control.kubeconfig, folder)
    try:
        gateway.wait_until_ready(60)
        time.sleep(2)
        return gateway.resident()
    finally:
        gateway.end()


def measure(arguments, control, authority, folder, pool, empty):
    report = Report()
    report.line("resident memory in an empty cluster", empty, "MiB")
    received = control.relay.received
    gateway = Gateway(arguments.binary, control.kubeconfig, folder)
    try:
        report.line("ready after", gateway.wait_until_ready(120), "s", 15)
        served = gateway.certificates()
        report.line("certificates that are not served", arguments.hosts + 1 - served, "", 0)
        megabytes = (control.relay.received - received) / 1e6
        report.line("downloaded", megabytes, "MB")
        releases = arguments.releases * RELEASE_BYTES / 1e6
        report.line("of that at most, if releases of Helm were among it", megabytes / max(releases, 1), "x", 0.99)
        time.sleep(5)
        full = gateway.resident()
        report.line("resident memory", full, "MiB", 200)
        report.line("resident memory, at most", gateway.resident("VmHWM"), "MiB")

        worker = gateway.worker()
        times, cpu = [], []
        for number in range(10):
            pair = authority.issue(place(number)[2])
            expected, host = der(pair), place(number)[2]
            time.sleep(0.5)
            before, began = gateway.cpu(worker), time.monotonic()
            rotate(control, number, pair)
            while gateway.serial(host) != expected:
                if time.monotonic() - began > 10:
                    raise SystemExit("error: a rotation is not served after 10 s")
                time.sleep(0.01)
            times.append(time.monotonic() - began)
            cpu.append((gateway.cpu(worker) - before) / 1)
        report.line("one rotation is served after, at worst of 10", max(times), "s", 1)
        report.line("processor time for it, handshakes that look included", 1000 * sum(cpu) / len(cpu), "ms", 10)

        count = min(arguments.rotations, arguments.hosts)
        pairs = list(pool.map(lambda index: authority.issue(place(index)[2]), range(count)))
        before, began = gateway.cpu(worker), time.monotonic()
        list(pool.map(lambda index: rotate(control, index, pairs[index]), range(count)))
        report.line(f"{count} rotations written in", time.monotonic() - began, "s", 10)
        written = time.monotonic()
        lost = set(range(count))
        while lost and time.monotonic() - written < 5:
            lost = {index for index in lost if gateway.serial(place(index)[2]) != der(pairs[index])}
        report.line("of them not served", len(lost), "", 0)
        report.line("processor time for them and the looks", gateway.cpu(worker) - before, "s")

        def delete(index):
            namespace, name, _ = place(index)
            control.api.request("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses/{name}")
            control.api.request("DELETE", f"/api/v1/namespaces/{namespace}/secrets/{name}")

        list(pool.map(delete, range(arguments.hosts)))
        deadline = time.monotonic() + 60
        while gateway.certificates() > 1 and time.monotonic() < deadline:
            time.sleep(0.5)
        report.line("certificates after all are deleted", gateway.certificates(), "", 1)
        time.sleep(10)
        # Half of what the objects took, and what an allocator may keep of any process.
        report.line("resident memory after that", gateway.resident(), "MiB", empty + (full - empty) / 2 + 8)
    finally:
        gateway.end()
    return report.missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path, help="the gateway, built with --release")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--rotations", type=int, default=1_000)
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and data")
    arguments = parser.parse_args()
    arguments.binary = arguments.binary.resolve()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="portcullis-scale-"))
    control = None
    try:
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            control = Control(folder)
            empty = resident_when_empty(arguments, control, folder)
            print("filling the cluster …", file=sys.stderr)
            authority = Authority(folder)
            fill(control, authority, arguments.hosts, arguments.releases, pool)
            missed = measure(arguments, control, authority, folder, pool, empty)
    finally:
        if control:
            control.end()
        if arguments.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
