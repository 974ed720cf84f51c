// A program of the CUDA driver API. Its argument says which story it tells.

#include "check.h"

int main(int count, char** arguments) {
  const struct {
    const char* name;
    void (*tell)(void);
  } stories[] = {{"start", start},           {"streams", streams},         {"events", events},
                 {"copies", copies},         {"pageable", pageable},       {"rows", rows},
                 {"boxes", boxes},           {"row_errors", row_errors},   {"captured_rows", captured_rows},
                 {"fills", fills},           {"row_fills", row_fills},     {"contexts", contexts},
                 {"limits", limits},         {"devices", devices},         {"memory", memory},
                 {"attributes", attributes}, {"unsupported", unsupported}, {"symbols", symbols}};
  for (size_t i = 0; i < sizeof stories / sizeof *stories; ++i) {
    if (count != 2 || strcmp(arguments[1], stories[i].name) != 0) continue;
    stories[i].tell();
    return 0;
  }
  fprintf(stderr, "usage: %s STORY\n", arguments[0]);
  return 2;
}
