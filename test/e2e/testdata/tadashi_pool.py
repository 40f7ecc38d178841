"""A pool of mpi4py workers. Each tiles the loops of its own program with tadashi."""

import tempfile

from mpi4py.futures import MPIPoolExecutor

SOURCE = """
#define N %d
double A[N][N], B[N][N];
int main(void) {
#pragma scop
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      A[i][j] = A[i][j] + B[j][i];
#pragma endscop
  return 0;
}
"""


def tile(size):
    import os
    import time

    from tadashi import TrEnum
    from tadashi.translators import Pet

    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.write(SOURCE % size)
        source.flush()
        translator = Pet()
        translator.set_source(source.name, [])
        band = next(node for node in translator.scops[0].schedule_tree if "BAND" in str(node.node_type))
        band.transform(TrEnum.TILE_1D, 4)
    time.sleep(0.05)  # long enough for the other workers to take a task
    return os.uname().nodename


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        hosts = list(pool.map(tile, range(100, 130)))
    print(len(hosts), "programs tiled on", *sorted(set(hosts)))
