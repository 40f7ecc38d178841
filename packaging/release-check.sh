#!/bin/sh
# Checks that the packages of the last commit can be released: in a new clone, it checks that
# THIRD_PARTY_LICENSES is up to date, builds the packages twice, in different folders, and compares
# them, and checks the licences and the version in all of them, and the heading of the changelog. It
# needs rpm and dpkg-deb, and root, because rpm installs into a folder.
set -eu
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] ||
    { echo "cannot check a release: the working tree differs from the last commit" >&2; git status --short >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --no-local . "$work/bringupd"
git -C "$work/bringupd" checkout --quiet "$(git rev-parse HEAD)"
cd "$work/bringupd"
make -s licences
go test -tags packages -timeout 60m -count=1 -run '^(TestSameBytes|TestVersions|TestSpellings|TestLicences|TestRpm)$' ./test/package
[ -z "$(git status --porcelain)" ] ||
    { echo "cannot release this commit: its files and what they result in differ" >&2; git diff >&2; exit 1; }
echo "$(sh packaging/version.sh) can be released"
