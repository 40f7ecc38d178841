#!/bin/sh
# Writes the Python wheels for x86_64 and aarch64 to $OUT. build.sh calls it with VERSION, TAGS, SHARE
# (the folder with the manual page and the completions), and SOURCE_DATE_EPOCH.
#
# The program in them is built with cgo, for GPUs and PMIx, and runs with glibc 2.17 or later. The
# compiler is zig from PyPI, whose glibc has only the symbols of the version in its -target. ZIG names
# another zig, for example on a machine without access to PyPI.
set -eu
cd "$(dirname "$0")/.."
glibc=2.17 # also in wheel.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Install zig, unless that has been done. Its folder gets its final name when it is complete.
if [ -z "${ZIG:-}" ]; then
    hash=$(sha256sum <packaging/zig-requirements.txt | cut -c 1-12)
    home=${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-build/zig-$hash
    if [ ! -x "$home/ziglang/zig" ]; then
        mkdir -p "${home%/*}"
        python3 -m venv "$work/venv"
        "$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --require-hashes --only-binary :all: \
            --requirement packaging/zig-requirements.txt --target "$work/zig"
        rm -rf "$home"
        mv "$work/zig" "$home"
    fi
    ZIG=$home/ziglang/zig
fi

# NVIDIA's functions are undefined until libnvidia-ml is loaded. go-nvml tells GNU's linker to accept
# that by --unresolved-symbols, which zig refuses. It accepts weak symbols, which are then made strong
# (strong_nvml.py), and must be bound lazily.
mkdir "$work/include" "$work/bin"
nvml=$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml/nvml.h
sed -n 's/.*DECLDIR.*\(nvml[A-Z][A-Za-z0-9_]*\) *(.*/#pragma weak \1/p' "$nvml" >"$work/include/weak_nvml.h"
cat >"$work/bin/bringupd-cc" <<EOF
#!/bin/sh
for argument; do
    shift
    case \$argument in
    -Wl,--unresolved-symbols=*) set -- "\$@" -Wl,-z,lazy ;;
    *) set -- "\$@" "\$argument" ;;
    esac
done
exec '$ZIG' cc -target "\$ZIG_TARGET" -isystem '$work/include' "\$@"
EOF
chmod +x "$work/bin/bringupd-cc"

for machine in x86_64 aarch64; do
    case $machine in
    x86_64) goarch=amd64 ;;
    aarch64) goarch=arm64 ;;
    esac
    # CC has no path, because the binary contains a hash of it. -g would add debugging information.
    PATH=$work/bin:$PATH CC=bringupd-cc ZIG_TARGET=$machine-linux-gnu.$glibc CGO_LDFLAGS=-O2 \
        CGO_CFLAGS="-O2 -Wno-deprecated-declarations -include weak_nvml.h" \
        GOARCH=$goarch make -s release BIN="$work/$machine" VERSION="$VERSION"
    python3 packaging/strong_nvml.py "$work/$machine/bringupd"
    CGO_ENABLED=0 go tool -modfile=tools/package/go.mod cyclonedx-gomod bin -json -std -noserial -notimestamp \
        -version "$VERSION" -output "$work/$machine/bringupd.cdx.json" "$work/$machine/bringupd"
    go run ./test/cmd/licences -sbom "$work/$machine/bringupd.cdx.json"
    python3 packaging/wheel.py --version "$(sh packaging/version.sh wheel)" --machine $machine --program "$work/$machine/bringupd" \
        --sbom "$work/$machine/bringupd.cdx.json" --share "$SHARE" --package python/bringupd --out "$OUT"
done
