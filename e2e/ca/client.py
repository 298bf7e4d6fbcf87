"""A client of the CSR service in another language: stubs generated from the .proto, keys and tokens made here.

  client.py issuer DIR             writes DIR/issuer.pem and DIR/jwks.json
  client.py token DIR              prints a token for shop/web
  client.py run DIR ADDRESS ROOTS  plays the scenarios and prints one JSON object with what came back
"""

import base64
import importlib
import json
import pathlib
import sys
import tempfile
import time

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID
from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
ISSUER = "https://issuer.test"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def issuer(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "issuer.pem").write_bytes(pem(key))
    numbers = key.public_key().public_numbers()
    jwk = {"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256"}
    jwk |= {"x": b64(numbers.x.to_bytes(32, "big")), "y": b64(numbers.y.to_bytes(32, "big"))}
    (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))


def token(folder, subject="system:serviceaccount:shop:web", audience="istio-ca", life=600):
    key = serialization.load_pem_private_key((folder / "issuer.pem").read_bytes(), None)
    header = b64(json.dumps({"alg": "ES256", "kid": "one", "typ": "JWT"}).encode())
    claims = {"iss": ISSUER, "sub": subject, "aud": [audience], "exp": int(time.time()) + life}
    signed = f"{header}.{b64(json.dumps(claims).encode())}"
    r, s = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def request(key, san="spiffe://cluster.local/ns/evil/sa/admin"):
    builder = x509.CertificateSigningRequestBuilder()
    builder = builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "evil")]))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=3), critical=True)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.UniformResourceIdentifier(san), x509.DNSName("evil.example")]), False
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def tampered(key):
    """A good request with one bit of its signature changed."""
    der = bytearray(x509.load_pem_x509_csr(request(key).encode()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


def describe(chain, key):
    leaf = x509.load_pem_x509_certificate(chain[0].encode())
    san = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    ca = leaf.extensions.get_extension_for_class(x509.BasicConstraints)
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return {
        "elements": len(chain),
        "uris": san.value.get_values_for_type(x509.UniformResourceIdentifier),
        "dns": san.value.get_values_for_type(x509.DNSName),
        "san_critical": san.critical,
        "subject": leaf.subject.rfc4514_string(),
        "ca": ca.value.ca,
        "life": int(life.total_seconds()),
        "same_key": leaf.public_key() == key.public_key(),
        "certificate": chain[0],
        "roots": chain[-1],
    }


class Client:
    def __init__(self, address, roots):
        self.address, self.roots = address, roots
        with tempfile.TemporaryDirectory() as out:
            include = pathlib.Path(protoc.__file__).parent / "_proto"
            arguments = ["protoc", f"-I{PROTO}", f"-I{include}", f"--python_out={out}", f"--grpc_python_out={out}"]
            assert protoc.main([*arguments, "istio/v1/auth/ca.proto"]) == 0
            sys.path.insert(0, out)
            self.messages = importlib.import_module("istio.v1.auth.ca_pb2")
            self.stubs = importlib.import_module("istio.v1.auth.ca_pb2_grpc")

    def call(self, csr, bearer=None, seconds=0, identity=(None, None), metadata=None):
        chain, key = identity
        credentials = grpc.ssl_channel_credentials(self.roots, key, chain)
        message = self.messages.IstioCertificateRequest(csr=csr, validity_duration=seconds)
        if metadata:
            message.metadata.update(metadata)
        headers = [("authorization", f"Bearer {bearer}")] if bearer else []
        with grpc.secure_channel(self.address, credentials) as channel:
            stub = self.stubs.IstioCertificateServiceStub(channel)
            return list(stub.CreateCertificate(message, metadata=headers, timeout=10).cert_chain)

    def refusal(self, *arguments, **named):
        try:
            self.call(*arguments, **named)
        except grpc.RpcError as error:
            return {"code": error.code().name, "details": error.details()}
        return {"code": "OK", "details": ""}


def run(folder, address, roots):
    client = Client(address, pathlib.Path(roots).read_bytes())
    good = token(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    rsa_key = rsa.generate_private_key(65537, 2048)
    csr = request(key)
    chain = client.call(csr, good)
    renewing = (("".join(chain[:-1])).encode(), pem(key))
    return {
        "token": describe(chain, key),
        "rsa": describe(client.call(request(rsa_key), good), rsa_key),
        "hour": describe(client.call(csr, good, seconds=3600), key),
        "renewal": describe(client.call(csr, identity=renewing), key),
        "no_credentials": client.refusal(csr),
        "wrong_audience": client.refusal(csr, token(folder, audience="other")),
        "expired": client.refusal(csr, token(folder, life=-1)),
        "user": client.refusal(csr, token(folder, subject="alice")),
        "garbage_token": client.refusal(csr, "a.b.c"),
        "impersonation": client.refusal(
            csr, good, metadata={"ImpersonatedIdentity": "spiffe://cluster.local/ns/shop/sa/db"}
        ),
        "too_long": client.refusal(csr, good, seconds=90 * 86400 + 1),
        "longest": describe(client.call(csr, good, seconds=90 * 86400), key),
        "garbage_csr": client.refusal("not a request", good),
        "tampered_csr": client.refusal(tampered(key), good),
        "weak_csr": client.refusal(request(rsa.generate_private_key(65537, 1024)), good),
        "huge_csr": client.refusal("x" * 20000, good),
    }


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    if sys.argv[1] == "issuer":
        issuer(folder)
    elif sys.argv[1] == "token":
        print(token(folder))
    else:
        print(json.dumps(run(folder, sys.argv[3], sys.argv[4])))
