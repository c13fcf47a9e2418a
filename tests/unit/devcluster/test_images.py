"""Images: hash of inputs, archives, layouts, transfer to nodes, pip's configuration, downloads."""

from __future__ import annotations

import hashlib
import http.client
import json
import tarfile
import tomllib
from pathlib import Path

import pytest

from podium_devcluster.artifacts import builders, debian, download, images, layout, oci
from podium_devcluster.artifacts.tiny_images import archive_name
from podium_devcluster.progress import Progress
from podium_devcluster.runtime import loading

ROOT = Path(__file__).parents[3]


def tree(root: Path) -> Path:
    (root / "pkg" / "__pycache__").mkdir(parents=True)
    (root / "pkg" / "a.py").write_text("a")
    (root / "pkg" / "b.sh").write_text("b")
    (root / "pkg" / "__pycache__" / "a.pyc").write_text("x")
    (root / "pkg" / "build").mkdir()
    (root / "pkg" / "build" / "out").write_text("x")
    return root


def key(root: Path, *extra: str) -> str:
    return images.digest(root, images.files_of(root, ["pkg"]), *extra)


def test_only_sources_are_inputs(tmp_path: Path) -> None:
    names = [file.name for file in images.files_of(tree(tmp_path), ["pkg"])]
    assert names == ["a.py", "b.sh"]


def test_the_image_has_every_package_but_those_that_only_researchers_call() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {package.partition("/")[0] for package in wheel["packages"]} - {"optimisers", "realtime"}
    assert {member for member in images.PODIUM.members if (ROOT / member).is_dir()} == folders
    context = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert folders <= context, "docker build needs them too"


def test_a_missing_input_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"requirements\.lock is missing"):
        images.files_of(tmp_path, ["requirements.lock"])


def test_digest_follows_content_name_mode_and_recipe_but_not_time(tmp_path: Path) -> None:
    root = tree(tmp_path)
    before = key(root)
    (root / "pkg" / "a.py").touch()
    assert key(root) == before
    (root / "pkg" / "__pycache__" / "new.pyc").write_text("y")
    assert key(root) == before
    assert key(root, "other recipe") != before
    (root / "pkg" / "b.sh").chmod(0o755)
    executable = key(root)
    assert executable != before
    (root / "pkg" / "a.py").write_text("A")
    changed = key(root)
    assert changed != executable
    (root / "pkg" / "a.py").rename(root / "pkg" / "c.py")
    assert key(root) != changed


def test_staged_context_is_the_hashed_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "from")
    files = images.files_of(root, ["pkg"])
    images.stage(root, files, tmp_path / "to")
    copied = images.files_of(tmp_path / "to", ["pkg"])
    assert images.digest(tmp_path / "to", copied) == images.digest(root, files)


def test_equal_archives_have_equal_bytes_and_contain_their_name(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    entries = [oci.Entry("bin/program", source=program), oci.Entry("bin/p", target="program"), oci.Entry("tmp")]
    for name in ("one.tar", "two.tar"):
        oci.write_archive(tmp_path / name, "localhost/x:1", entries, ["/bin/program"])
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    read = oci.read_archive(tmp_path / "one.tar")
    assert read is not None
    assert read.name == "localhost/x:1"
    assert read.digest.startswith("sha256:")


def test_an_archive_without_oci_layout_has_no_name(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("manifest.json"))
    assert oci.read_archive(tmp_path / "x.tar") is None


def make_layout(root: Path) -> tuple[Path, list[str]]:
    """What buildah writes (`dir:`), made into a layout."""
    plain, folder = root / "plain", root / "x-dev"
    plain.mkdir()
    for name, text in (("c", "config"), ("l1", "layer one"), ("l2", "layer two")):
        (plain / name).write_text(text)
    parts = {"config": {"digest": "sha256:c"}, "layers": [{"digest": "sha256:l1"}, {"digest": "sha256:l2"}]}
    (plain / "manifest.json").write_text(json.dumps({"mediaType": "application/x", **parts}))
    (folder / "blobs" / "sha256").mkdir(parents=True)
    (folder / "blobs" / "sha256" / "old").write_text("of a former build")
    layout.adopt(plain, folder, "localhost/x:dev")
    digest = "sha256:" + hashlib.sha256((plain / "manifest.json").read_bytes()).hexdigest()
    return folder, [digest, "sha256:c", "sha256:l1", "sha256:l2"]


def test_layout_forgets_former_builds(tmp_path: Path) -> None:
    folder, digests = make_layout(tmp_path)
    assert layout.blobs(folder) == digests
    kept = {blob.name for blob in (folder / "blobs" / "sha256").iterdir()}
    assert kept == {digest.removeprefix("sha256:") for digest in digests}
    assert layout.read(folder) == oci.ArchivedImage("localhost/x:dev", digests[0])


def test_thin_archive_leaves_out_what_the_node_has_but_never_the_manifest(tmp_path: Path) -> None:
    folder, digests = make_layout(tmp_path)
    layout.write_archive(folder, tmp_path / "x.tar", without={"sha256:l1", digests[0]})
    with tarfile.open(tmp_path / "x.tar") as archive:
        names = archive.getnames()
    manifest = digests[0].replace(":", "/")
    assert names == ["oci-layout", "index.json", f"blobs/{manifest}", "blobs/sha256/c", "blobs/sha256/l2"]
    assert oci.read_archive(tmp_path / "x.tar") == oci.ArchivedImage("localhost/x:dev", digests[0])


def test_listing_of_a_node() -> None:
    text = "REF TYPE DIGEST SIZE PLATFORMS LABELS\nlocalhost/x:1 application/v sha256:ab 1 MiB linux/amd64 -\nbroken\n"
    assert loading.parse_listing(text) == {"localhost/x:1": "sha256:ab"}


def test_image_names() -> None:
    assert archive_name("localhost/podium:dev") == "podium-dev.tar"
    assert [recipe.short for recipe in images.select(())] == ["podium", "podium-fake-driver", "podium-digits"]
    with pytest.raises(ValueError, match=r"unknown images x; choose from: podium, "):
        images.select(["x"])


def test_pip_settings_env_beats_file_and_paths_of_the_host_stay_out() -> None:
    listing = (
        ":env:.index-url='https://b'\nglobal.index-url='https://a'\nglobal.cert='/x'\nglobal.find-links='/w\\n/v'\n"
    )
    options = builders.parse_pip_settings(listing)
    assert options == {"index-url": "https://b", "find-links": "/w\n/v"}
    assert builders.pip_conf(options) == "[global]\nfind-links = /w\n    /v\nindex-url = https://b\n"


@pytest.mark.parametrize(
    ("text", "mirror"),
    [
        ("Types: deb\nURIs: http://m.example/debian\nSuites: bookworm\n", "http://m.example/debian"),
        ("deb [arch=amd64] http://m.example/debian/ bookworm main\n", "http://m.example/debian/"),
        ("deb https://other.example/apt stable main\n", None),
        ("URIs: http://m.example/debian-security\n", None),
        ("# deb http://m.example/debian bookworm main\n", None),
    ],
)
def test_mirror(text: str, mirror: str | None) -> None:
    assert debian.mirror_from(text) == mirror


@pytest.mark.parametrize(
    ("name", "ending"), [("kubelet", "/linux/arm64/kubelet"), ("etcd", "linux-arm64.tar.gz"), ("kind", "-arm64")]
)
def test_release_addresses(name: str, ending: str) -> None:
    release = download.source(name, "1.2.3", "arm64")
    assert release is not None
    assert release[0].endswith(ending)


def test_checksums_alone_or_in_a_list() -> None:
    assert download.published_checksum("abc\n", "https://x/kubelet") == "abc"
    assert download.published_checksum("1 a.tar\n2 *b.tar\n", "https://x/b.tar") == "2"
    with pytest.raises(download.ChecksumError, match="no checksum"):
        download.published_checksum("1 a.tar\n2 b.tar\n", "https://x/c.tar")


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes | Exception]:
    """What the release server answers, by address."""
    answers: dict[str, bytes | Exception] = {}

    def get(address: str, step: object) -> bytes:
        answer = answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(download, "_get", get)
    monkeypatch.setattr(download, "_unreachable", set())
    monkeypatch.setattr(download, "architecture", lambda: "amd64")
    monkeypatch.setenv("PODIUM_DOWNLOAD", "1")
    return answers


KUBELET = "https://dl.k8s.io/release/v1.2.3/bin/linux/amd64/kubelet"


@pytest.mark.parametrize("error", [OSError("no route"), TimeoutError("timed out"), http.client.IncompleteRead(b"x")])
def test_a_failed_download_is_skipped_and_never_ok(
    error: Exception, release: dict[str, bytes | Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release[f"{KUBELET}.sha256"] = error
    assert download.fetch("kubelet", "1.2.3", tmp_path / "kubelet", Progress()) is False
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("skip download kubelet 1.2.3: dl.k8s.io did not deliver it")
    assert download.fetch("kube-proxy", "1.2.3", tmp_path / "x", Progress()) is False, "not tried again"
    assert capsys.readouterr().err == ""


def test_a_download_with_another_checksum_fails(
    release: dict[str, bytes | Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release |= {f"{KUBELET}.sha256": b"0" * 64, KUBELET: b"program"}
    with pytest.raises(download.ChecksumError, match="differs from the published one"):
        download.fetch("kubelet", "1.2.3", tmp_path / "kubelet", Progress())
    assert capsys.readouterr().err.startswith("FAIL download kubelet 1.2.3")
    assert not (tmp_path / "kubelet").exists()


def test_a_download_is_stored(release: dict[str, bytes | Exception], tmp_path: Path) -> None:
    release |= {f"{KUBELET}.sha256": hashlib.sha256(b"program").hexdigest().encode(), KUBELET: b"program"}
    assert download.fetch("kubelet", "1.2.3", tmp_path / "kubelet", Progress(quiet=True)) is True
    assert (tmp_path / "kubelet").read_bytes() == b"program"


def test_equal_blobs_are_stored_once(tmp_path: Path) -> None:
    for image in ("a", "b"):
        (tmp_path / image / "blobs/sha256").mkdir(parents=True)
        (tmp_path / image / "blobs/sha256/1234").write_bytes(b"layer")
    (tmp_path / "b/blobs/sha256/5678").write_bytes(b"other")
    blobs = sorted(tmp_path.glob("*/blobs/sha256/*"))
    layout.share_blobs(blobs, blobs)
    assert (tmp_path / "a/blobs/sha256/1234").samefile(tmp_path / "b/blobs/sha256/1234")
    assert (tmp_path / "b/blobs/sha256/5678").read_bytes() == b"other"
    assert len(list(tmp_path.glob("*/blobs/sha256/*"))) == 3


def test_the_image_has_every_package_that_its_programs_import() -> None:
    """A folder that the recipe forgets is missing in the image, and its programs end at their first import."""
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    members = set(images.PODIUM.members)
    missing = {package.partition("/")[0] for package in packages} - members
    assert missing == {"simulator", "optimisers", "realtime"} - members  # no program of a cluster imports them
