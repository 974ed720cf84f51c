#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "tools/command.h"

int main(int argc, char** argv) {
  // The library insists on a real device unless told otherwise; the command takes what there is.
  const char* device = std::getenv("CISTERN_DEVICE");
  if (device == nullptr || *device == '\0') ::setenv("CISTERN_DEVICE", "auto", 1);
  std::ios::sync_with_stdio(false);
  const cistern::Arguments arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return cistern::run_command(arguments, {std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1});
}
