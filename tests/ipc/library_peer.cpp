// A process that uses the library as its users do.

#include "tests/ipc/peer_commands.h"

int main() { return cistern::testing::serve({}); }
