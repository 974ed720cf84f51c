// Nothing: the program whose headers are precompiled for all the others (tests/CMakeLists.txt).
