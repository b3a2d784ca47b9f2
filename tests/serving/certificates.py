"""Certificates made by openssl: an authority, a server for 127.0.0.1, clients, and untrusted ones."""

import subprocess
from datetime import datetime, timedelta, timezone


class Authority:
    """A certificate authority in a folder; issue() returns the paths of a certificate and its key."""

    def __init__(self, folder, name="ca"):
        self.folder, self.name = folder, name
        folder.mkdir(parents=True, exist_ok=True)
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
            "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.cert,
        )  # fmt: skip

    def issue(self, name, *, expired=False, valid_s=None, hosts="IP:127.0.0.1,DNS:localhost"):
        """valid_s: seconds from now until it expires."""
        cert, key, request = (self.folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
        names = self.folder / f"{name}.ext"
        names.write_text(f"subjectAltName={hosts}\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        dates = ("20200101000000Z", "20200201000000Z") if expired else ("20260101000000Z", "20991231000000Z")
        if valid_s is not None:
            ends = datetime.now(timezone.utc) + timedelta(seconds=valid_s)
            dates = (dates[0], ends.strftime("%Y%m%d%H%M%SZ"))
        records = self.folder / f"{name}.records"
        records.touch()
        settings = self.folder / f"{name}.cnf"
        settings.write_text(_CA.format(records=records, folder=self.folder, serial=self.folder / f"{name}.serial"))
        _openssl(
            "ca", "-batch", "-notext", "-config", settings, "-cert", self.cert, "-keyfile", self.key, "-in", request,
            "-out", cert, "-extfile", names, "-startdate", dates[0], "-enddate", dates[1], "-rand_serial",
        )  # fmt: skip
        return cert, key


_CA = """[ca]
default_ca = it
[it]
database = {records}
new_certs_dir = {folder}
serial = {serial}
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def _openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True, text=True)
