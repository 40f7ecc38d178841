#!/bin/sh
# Runs mpi4py's own test suite with each MPI, once by the MPI's mpirun and once by bringupd. The
# results are in test/mpi4py.md.
#
#   sh test/mpi4py.sh BRINGUPD [MPI...]     # openmpi5 mpich5 intelmpi openmpi4 mpich4
#
# It prints a table row for each run, and then the tests that fail with only one of the launchers.
# Variables:
#   RANKS      number of ranks; all run on one node, as with mpirun on this machine
#   PARTS      parts of the suite to run: all, spawn
#   LAUNCHERS  "bringupd" omits the runs by mpirun
#   LIMIT      maximum duration of a run in seconds
#   ONLY       flags that select tests, such as -i REGEX
#   KEEP       folder for the complete output
set -u
bringupd=$(realpath "$1")
shift
. "$(dirname "$0")/setup.sh"
have_mpis || exit 1
ranks="${RANKS:-2}" sources="$CACHE/mpi4py-$MPI4PY_VERSION-sources" out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ -e "$sources/test/main.py" ] || {
    mkdir -p "$sources"
    "$BRINGUPD_TEST_OPENMPI" -m pip download --quiet --no-deps --no-binary :all: --dest "$out" "mpi4py==$MPI4PY_VERSION" || exit 1
    tar -xf "$out/mpi4py-$MPI4PY_VERSION.tar.gz" -C "$sources" --strip-components=1 || exit 1
}
mkdir "$out/mpich4" && ln -s /usr/lib/x86_64-linux-gnu/libmpich.so.12 "$out/mpich4/libmpi.so.12" # the name in the wheel
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1

# of MPI: sets python and mpirun for an MPI. Debian's MPIs use the mpi4py of the other MPIs, which
# works with any libmpi.
of() { # MPI
    unset MPI4PY_LIBMPI LD_LIBRARY_PATH
    case "$1" in
    openmpi5) python="$BRINGUPD_TEST_OPENMPI" mpirun="${python%/*}/mpirun --oversubscribe" ;;
    mpich5) python="$BRINGUPD_TEST_MPICH" mpirun="${python%/*}/mpirun" ;;
    intelmpi) python="$BRINGUPD_TEST_INTEL" mpirun="${python%/*}/mpirun" ;;
    openmpi4) python="$BRINGUPD_TEST_OPENMPI" mpirun="mpirun.openmpi --oversubscribe" && export MPI4PY_LIBMPI=/usr/lib/x86_64-linux-gnu/libmpi.so.40 ;;
    mpich4) python="$BRINGUPD_TEST_MPICH" mpirun="mpirun.mpich" && export LD_LIBRARY_PATH="$out/mpich4" ;;
    esac
}

# row MPI PART LAUNCHER COMMAND...: runs the tests, and prints the numbers of tests and of skipped
# tests on one rank, the number of failures on all ranks, the exit code, and the duration.
row() { # MPI PART LAUNCHER COMMAND...
    mpi=$1 part=$2 launcher=$3 said="$out/$1.$2.$3"
    shift 3
    begun=$(date +%s)
    timeout -k 5 "${LIMIT:-600}" "$@" "$python" "$sources/test/main.py" -q $which >"$said" 2>&1 </dev/null
    code=$?
    grep -E '^(FAIL|ERROR): ' "$said" | sort -u >"$said.failed"
    echo "| $mpi | $part | $launcher | $(sed -n 's/^Ran \([0-9]*\) tests* in.*/\1/p' "$said" | sort -n | tail -1) |" \
        "$(sed -n 's/.*skipped=\([0-9]*\).*/\1/p' "$said" | sort -n | tail -1) | $(wc -l <"$said.failed") | $code | $(($(date +%s) - begun)) |"
    [ -z "${KEEP:-}" ] || cp "$said" "$KEEP"
}

echo "| MPI | tests | launcher | ran | skipped | failures | code | s |"
echo "|---|---|---|---|---|---|---|---|"
for mpi in "${@:-openmpi5 mpich5 intelmpi openmpi4 mpich4}"; do
    for mpi in $mpi; do
        of "$mpi"
        for part in ${PARTS:-all spawn}; do
            which="-e spawn -e dynproc"
            [ "$part" = all ] || which="-i spawn -i dynproc"
            [ -z "${ONLY:-}" ] || which="$ONLY"
            case "${LAUNCHERS:-mpirun}" in *mpirun*) row "$mpi" "$part" mpirun $mpirun -n "$ranks" ;; *) : >"$out/$mpi.$part.mpirun.failed" ;; esac
            row "$mpi" "$part" bringupd "$bringupd" local --nodes=1 --ranks-per-node="$ranks" --slots-per-node=8 --oversubscribe --log-dir="$out/logs" --
            comm -13 "$out/$mpi.$part.mpirun.failed" "$out/$mpi.$part.bringupd.failed" | sed 's/^/    by bringupd alone: /'
            comm -23 "$out/$mpi.$part.mpirun.failed" "$out/$mpi.$part.bringupd.failed" | sed 's/^/    by mpirun alone: /'
        done
    done
done
