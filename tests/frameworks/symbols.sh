#!/bin/sh
# Writes a C++ file that compiles only if every name in the third column of docs/frameworks.md is
# declared in cistern's public headers: a using-declaration for each, of a namespace's names or, in a
# derived class, of a class's members (using takes overloads and data members alike).
set -eu
awk -F'|' '
  BEGIN {
    print "#include <cistern/cistern.h>\n#include <cistern/simulated.h>\n"
    print "#pragma GCC diagnostic ignored \"-Wdeprecated-declarations\"  // deprecated names are declared, too\n"
    print "namespace names {"
  }
  /^\| / && NF >= 6 {
    cell = $4
    while (match(cell, /`[^`]+`/)) {
      name = substr(cell, RSTART + 1, RLENGTH - 2)
      cell = substr(cell, RSTART + RLENGTH)
      if (name ~ /^[A-Z_]+$/ || name in seen) continue  # environment variables
      seen[name] = 1
      if (name !~ /^[A-Za-z_:]+$/) { printf "#error \"docs/frameworks.md: %s is no name\"\n", name; continue }
      count++
      if (match(name, /^[A-Z][A-Za-z]*::/)) {
        printf "struct Names%d : cistern::%s { using cistern::%s; };\n", count, substr(name, 1, RLENGTH - 2), name
      } else {
        printf "namespace names%d { using cistern::%s; }\n", count, name
      }
    }
  }
  END { print "}  // namespace names" }
' "$1"
