#!/usr/bin/env bash
# Make the base of examples/serving/Dockerfile from Debian's packages, for a builder that reaches no registry of images.
#
#     apt-get install --no-install-recommends buildah crun debootstrap
#     .ci/base_image.sh && MVINDEX_BUILD_IMAGE=1 make test FULL=1 T=tests/serving/test_examples.py
#
# The image is named as the Dockerfile's base, with the Python of Debian 12 (3.11). Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" http://deb.debian.org/debian
ln -s python3 "$root/usr/bin/python"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp constraints.txt "$root/etc/pip-constraints.txt"
cat >"$root/etc/pip.conf" <<'SETTINGS'
[global]
cert = /etc/ssl/certs/ca-certificates.crt
constraint = /etc/pip-constraints.txt
retries = 0
SETTINGS

container=$(buildah from scratch)
buildah add --quiet "$container" "$root" /
buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
buildah commit --quiet --rm "$container" docker.io/library/python:3.12-slim
