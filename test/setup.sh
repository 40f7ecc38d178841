# Sourced by the scripts beside it and by test/cmd/suite: installs what the tests
# need and this machine lacks, and says what can't be had. It installs nothing
# twice.

RAY_VERSION=2.60.0
RAY_HOME="${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-test/ray-$RAY_VERSION"
export BRINGUPD_TEST_RAY="$RAY_HOME/bin/ray"

# lack says what is missing, and what does not run for that.
lack() {
    echo "NOT RUN: $1" >&2
    return 1
}

# Without it 29 warnings about what NVIDIA's own header calls deprecated.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"

# have_cc installs a C compiler: NVML and the race detector need one, and Go
# leaves NVML out without a word where there is none.
have_cc() {
    echo '#include <stdlib.h>' | gcc -fsyntax-only -x c - 2>/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev ||
        { lack "the tests need gcc and the C library's headers: Debian's gcc and libc6-dev"; return 1; }
}

# have_fuse tells whether file systems of our own can be mounted.
have_fuse() {
    [ "$(id -u)" = 0 ] || { lack "the tests on a hostile share need root, for mounts"; return 1; }
    [ -e /dev/fuse ] || { lack "the tests on a hostile share need /dev/fuse"; return 1; }
}

# have_testbed installs the Debian packages of a Slurm, sshfs and MooseFS.
have_testbed() {
    [ "$(id -u)" = 0 ] || { lack "the tests on a real Slurm need root, for namespaces and mounts"; return 1; }
    [ -e /dev/fuse ] || { lack "the tests on a real Slurm need /dev/fuse"; return 1; }
    go run ./test/cmd/testbed -install || { lack "the tests on a real Slurm need Debian's slurm-wlm, munge, sshfs, openssh-server and MooseFS"; return 1; }
}

# have_browser installs a Chromium that has no window: some 100 MB with what it
# needs.
have_browser() {
    command -v chromium-headless-shell >/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium-headless-shell >/dev/null ||
        { lack "the tests of the report's page need a browser: Debian's chromium-headless-shell"; return 1; }
}

# have_ray installs a pinned Ray into a virtual environment of its own.
have_ray() {
    if [ ! -e "$RAY_HOME/complete" ]; then
        echo "installing Ray $RAY_VERSION into $RAY_HOME"
        rm -rf "$RAY_HOME"
        python3 -m venv "$RAY_HOME" &&
            "$RAY_HOME/bin/pip" install --quiet --disable-pip-version-check "ray[default]==$RAY_VERSION" &&
            touch "$RAY_HOME/complete" ||
            { lack "the tests with a real Ray need python3 with venv, and PyPI"; return 1; }
    fi
}
