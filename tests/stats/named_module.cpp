// A module of one function that can be found, and of another that lies where it does in a second one.

#ifdef CISTERN_OTHER
extern "C" __attribute__((visibility("default"))) int not_me(int x) { return x + 1; }
extern "C" __attribute__((visibility("default"))) int call_me(int x) { return x + 1; }
#else
extern "C" __attribute__((visibility("default"))) int call_me(int x) { return x + 1; }
#endif
