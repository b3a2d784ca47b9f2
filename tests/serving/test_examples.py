"""The files of examples/serving: manifests are valid, and every command line in them parses with the real program."""

import configparser
import json
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from certificates import Authority
from serving_tools import wait_for
from typer.main import get_command

import mvindex
from mvindex.measure.planning.units import parse_seconds
from mvindex_connectors.server.cli import app
from mvindex_connectors.server.config import parse_index

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "serving"
KUBERNETES = EXAMPLES / "kubernetes"
# What an address on a command line needs of the image.
NEEDS = {"milvus://": "milvus", "s3://": "files"}


def documents():
    """The resources of the kustomization, by kind and name."""
    resources = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    found = [each for name in resources for each in yaml.safe_load_all((KUBERNETES / name).read_text())]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


def pods():
    """The pods of all resources, by the resource."""
    return {name: each["spec"]["template"]["spec"] for name, each in documents().items() if "template" in each["spec"]}


def docker_command():
    text = (EXAMPLES / "Dockerfile").read_text().replace("\\\n", " ")
    return json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])


def unit_command():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(EXAMPLES / "mvindex.service")
    words = shlex.split(unit["Service"]["ExecStart"])
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    assert words[:2] == ["/opt/mvindex/bin/mvindex", "serve"]
    return words[2:]


def serve_commands():
    """The arguments of every `mvindex serve` in the examples."""
    compose = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())
    found = {
        "Dockerfile": docker_command(),
        "compose": compose["services"]["mvindex"]["command"],
        "systemd": unit_command(),
    }
    for name, pod in pods().items():
        found |= {f"{name} {each['name']}": each["args"] for each in pod["containers"]}
    return found


def parsed(args):
    """Return the options of a command line as `mvindex serve` reads them; an error of usage names a wrong one."""
    command = get_command(app)
    return command.make_context("serve", list(args)).params


@pytest.mark.parametrize("where", serve_commands())
def test_every_command_line_parses_and_means_something(where):
    options = parsed(serve_commands()[where])
    names = [parse_index(text)[0] for text in options["index"]]
    assert names == ["corpus"]
    assert options["host"] == "127.0.0.1" or all(options[name] for name in ("tls_cert", "tls_key", "token_file"))
    for name in ("snapshot_every", "follow_every"):
        assert parse_seconds(name, options[name]) >= 1


def test_a_wrong_option_would_be_found():
    with pytest.raises(Exception, match="No such option: --snapshotz"):
        parsed(["--index=a=b", "--snapshotz=x"])
    with pytest.raises(Exception, match="Input should be a valid integer"):
        parsed(["--index=a=b", "--port=many"])


def test_the_image_has_the_extras_that_its_command_lines_need():
    extras = set(re.search(r'"\.\[([^]]+)\]"', (EXAMPLES / "Dockerfile").read_text())[1].split(","))
    used = {extra for args in serve_commands().values() for word in args for at, extra in NEEDS.items() if at in word}
    assert used == {"milvus", "files"}
    assert used | {"server"} <= extras


@pytest.mark.needs("kubernetes-schemas")
def test_manifests_fit_the_schemas_of_kubernetes():
    import kubernetes_validate

    for each in documents().values():
        for version in ("1.31", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(each, version, strict=True)
        wrong = json.loads(json.dumps(each))
        wrong["spec"]["no-such-field"] = 1
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.31", strict=True)


# Schemas of other projects, as the package bundles them.
SCHEMAS = {
    "examples/serving/compose.yaml": "vendor.compose-spec",
    ".github/workflows/release.yml": "vendor.github-workflows",
}


@pytest.mark.needs("check-jsonschema")
@pytest.mark.parametrize("path", SCHEMAS)
def test_files_of_other_projects_fit_their_schemas(path, tmp_path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[path]]
    subprocess.run([*command, ROOT / path], check=True)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((ROOT / path).read_text(encoding="utf-8") + "\nno-such-member: 1\n", encoding="utf-8")
    assert subprocess.run([*command, wrong], capture_output=True, check=False).returncode == 1


@pytest.mark.needs("kubectl")
def test_kustomize_renders_the_manifests():
    done = subprocess.run(
        [shutil.which("kubectl"), "kustomize", KUBERNETES], capture_output=True, text=True, check=True
    )
    rendered = list(yaml.safe_load_all(done.stdout))
    assert {f"{each['kind']} {each['metadata']['name']}" for each in rendered} == documents().keys()
    assert set(re.findall("image: (mvindex.*)", done.stdout)) == {f"mvindex:{mvindex.__version__}"}


@pytest.mark.parametrize("name", pods())
def test_a_pod_mounts_what_it_names_and_probes_ports_that_it_has(name):
    pod = pods()[name]
    claims = documents()[name]["spec"].get("volumeClaimTemplates", [])
    volumes = {each["name"] for each in pod["volumes"]} | {each["metadata"]["name"] for each in claims}
    ports = []
    for each in pod["containers"]:
        options = parsed(each["args"])
        mounted = [PurePosixPath(mount["mountPath"]) for mount in each["volumeMounts"]]
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes
        paths = [options["tls_cert"], options["tls_key"], options["token_file"], parse_index(options["index"][0])[1]]
        for path in paths:
            assert any(mount in PurePosixPath(path).parents for mount in mounted), path
        named = {port["name"]: port["containerPort"] for port in each["ports"]}
        assert {options["port"], options["http"]} == set(named.values())
        for probe, path in (("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
            check = each[probe]["httpGet"]
            assert (check["path"], check["scheme"], named[check["port"]]) == (path, "HTTPS", options["http"])
        assert each["resources"]["limits"]["memory"] and each["resources"]["requests"]
        ports += list(named.values())
        assert pod["terminationGracePeriodSeconds"] > options["drain_s"]
    assert len(ports) == len(set(ports))


def test_services_lead_to_ports_of_their_pods():
    for name, each in documents().items():
        if each["kind"] != "Service":
            continue
        (target,) = [
            other
            for other in documents().values()
            if other["spec"].get("template", {}).get("metadata", {}).get("labels") == each["spec"]["selector"]
        ]
        has = {
            port["name"]: port["containerPort"]
            for container in target["spec"]["template"]["spec"]["containers"]
            for port in container["ports"]
        }
        for port in each["spec"]["ports"]:
            assert has[port["targetPort"]] == port["port"], name


def test_one_writes_two_read_and_others_follow_where_the_writer_leaves_snapshots():
    commands = {where: parsed(args) for where, args in serve_commands().items() if "mvindex " in where or "-f" in where}
    writers = [each for each in commands.values() if not each["read_only"] and each["follow"] is None]
    readers = [each for each in commands.values() if each["read_only"]]
    (follower,) = [each for each in commands.values() if each["follow"] is not None]
    assert len(writers) == 1 and len(readers) == 2
    assert all(each["index"] == writers[0]["index"] for each in readers)
    assert follower["follow"] == writers[0]["snapshots"]
    assert documents()["StatefulSet mvindex"]["spec"]["replicas"] == 1


def buildah(*args):
    return subprocess.run(["buildah", *map(str, args)], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@pytest.fixture
def container(monkeypatch):
    """A container of the image, which is built from the checkout."""
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    monkeypatch.setenv("STORAGE_DRIVER", "vfs")
    tag = "localhost/mvindex-test"
    buildah("bud", "--network", "host", "-t", tag, "-f", EXAMPLES / "Dockerfile", EXAMPLES.parents[1])
    made = buildah("from", tag)
    yield made
    buildah("rm", made)


@pytest.mark.needs("buildah")
def test_the_image_builds_and_serves(container, tmp_path):
    """With its own command, as its own user, by TLS and with a token."""
    command = docker_command()
    port = int(command[command.index("--http") + 1])
    server, authority, token = tmp_path / "secrets", Authority(tmp_path / "tls"), "0123456789abcdef"
    server.mkdir()
    for source, name in zip(authority.issue("server", hosts="DNS:localhost"), ("tls.pem", "tls.key"), strict=True):
        (server / name).write_bytes(Path(source).read_bytes())
    (server / "tokens").write_text(f"read-only {token} reader\n")
    with mvindex.create(tmp_path / "data" / "corpus.mvx", dim=4) as index:
        index.add_views([mvindex.Document("a", "the text")], np.eye(4, dtype=np.float32)[:1, None])
    subprocess.run(["chmod", "-R", "a+rwX", tmp_path], check=True)
    volumes = [f"--volume={tmp_path / 'data'}:/data", f"--volume={server}:/run/secrets"]
    entry = json.loads(buildah("inspect", container))["OCIv1"]["config"]["Entrypoint"]
    run = ["buildah", "run", "--network=host", "--user=mvindex", *volumes, container, "--", *entry, *command]
    context = ssl.create_default_context(cafile=authority.cert)
    address = f"https://localhost:{port}"
    with subprocess.Popen(run) as serving:
        try:
            wait_for(lambda: answers(f"{address}/livez", context), seconds=60)
            body = json.dumps({"vector": [1.0, 0.0, 0.0, 0.0]}).encode()
            headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
            request = urllib.request.Request(f"{address}/v1/indexes/corpus/search", body, headers)
            found = json.load(urllib.request.urlopen(request, context=context, timeout=30))
        finally:
            serving.terminate()
    assert [hit["text"] for hit in found["hits"]] == ["the text"]


def answers(url, context):
    try:
        return urllib.request.urlopen(url, context=context, timeout=5).status == 200
    except OSError:
        return False
