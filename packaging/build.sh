#!/bin/sh
# Writes the files that users install to $DIST: two tarballs, a .deb, an .rpm, two Python wheels,
# SBOMs, the source and checksums. make package calls it with TAGS. Builds are reproducible: the same
# commit results in the same bytes if Go, gcc (needed for NVML) and zlib have the same versions.
set -eu
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC GOFLAGS="-trimpath -buildvcs=false" SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
tool() { CGO_ENABLED=0 go tool -modfile=tools/package/go.mod "$@"; } # its hash is in the SBOM

version=$(sh packaging/version.sh)
arch=$(go env GOARCH)
name=bringupd-$version
out=$(realpath -m "${DIST:-dist}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/bringupd[-_]* "$out/SHA256SUMS"

# Prepare the files that all packages have in common.
stage=$work/$name
share=$stage/share
mkdir -p "$stage/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d" \
    "$share/doc/bringupd" "$share/bringupd/modulefiles/bringupd" "$share/bringupd/spack/packages/bringupd"
make -s release BIN="$work/glibc" VERSION="$version"
make -s static BIN="$work/static" VERSION="$version"
gzip -9n <docs/bringupd.1 >"$share/man/man1/bringupd.1.gz"
"$work/static/bringupd" completion bash >"$share/bash-completion/completions/bringupd"
"$work/static/bringupd" completion zsh >"$share/zsh/site-functions/_bringupd"
"$work/static/bringupd" completion fish >"$share/fish/vendor_completions.d/bringupd.fish"
cp -R README.md CHANGELOG.md docs "$share/doc/bringupd"
mkdir "$share/licenses" "$share/licenses/bringupd"
cp LICENSE NOTICE THIRD_PARTY_LICENSES "$share/licenses/bringupd"
cp -R deploy examples "$share/bringupd"
rm "$share"/bringupd/deploy/*.go
ln -s ../../bringupd/deploy ../../bringupd/examples "$share/doc/bringupd" # for links in the README
cp packaging/modulefile "$share/bringupd/modulefiles/bringupd/$version"
source=$out/$name-source.tar.gz
git -c tar.umask=0022 archive --prefix="$name/" HEAD | gzip -9n >"$source"
sed "s/@VERSION@/$version/; s/@NUMBER@/$(sh packaging/version.sh number)/; s/@TAGS@/$TAGS/
    s/@HASH@/$(sha256sum <"$source" | cut -d ' ' -f 1)/" packaging/spack.py \
    >"$share/bringupd/spack/packages/bringupd/package.py"
printf 'repo:\n  namespace: bringupd\n  api: v2.0\n' >"$share/bringupd/spack/repo.yaml"
chmod -R u=rwX,go=rX "$stage"

for kind in glibc static; do
    cp "$work/$kind/bringupd" "$stage/bin"
    suffix=linux-$arch
    [ $kind = glibc ] || suffix=$suffix-static
    tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
        gzip -9n >"$out/$name-$suffix.tar.gz"
    tool cyclonedx-gomod bin -json -std -noserial -notimestamp -version "$version" -output "$out/$name-$suffix.cdx.json" "$stage/bin/bringupd"
    go run ./test/cmd/licences -sbom "$out/$name-$suffix.cdx.json"
done

cp "$work/glibc/bringupd" "$stage/bin"
export STAGE="$stage" PACKAGE_VERSION GOARCH="$arch" GLIBC
PACKAGE_VERSION=$(sh packaging/version.sh package)
GLIBC=$(objdump -T "$stage/bin/bringupd" | sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -V | tail -n 1)
for packager in deb rpm; do
    tool nfpm package --config packaging/nfpm.yaml --packager $packager --target "$out" >"$work/nfpm.log" || { cat "$work/nfpm.log" >&2; exit 1; }
done
[ "${WHEELS:-yes}" = no ] ||
    OUT="$out" VERSION="$version" TAGS="$TAGS" SHARE="$share" sh packaging/wheels.sh
(cd "$out" && sha256sum bringupd* >SHA256SUMS && cat SHA256SUMS)
