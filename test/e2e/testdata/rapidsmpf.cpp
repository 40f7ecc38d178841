// A rank of rapidsmpf that meets the others as create_ucxx_comm does, which needs a GPU: rank 0
// puts a value, and the others get it after a synchronisation. Twice, because a value can be
// replaced.
#include <iostream>
#include <string>

#include <rapidsmpf/bootstrap/bootstrap.hpp>

using namespace rapidsmpf::bootstrap;

int main() {
    auto world = init();
    std::string got;
    for (int turn = 0; turn < 2; turn++) {
        if (world.rank == 0)
            put(world, "address", std::string("of rank 0\n\0", 11) + std::to_string(turn));
        sync(world);
        got = get(world, "address");
        barrier(world);
    }
    std::cout << "rank " + std::to_string(world.rank) + " of " + std::to_string(world.nranks)
                     + ": the value has " + std::to_string(got.size()) + " bytes and ends with "
                     + got.back() + "\n"
              << std::flush;
}
