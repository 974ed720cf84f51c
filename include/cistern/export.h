#pragma once

// Marks what the shared library exports; everything else is hidden.
#if defined(__GNUC__)
#define CISTERN_EXPORT __attribute__((visibility("default")))
#else
#define CISTERN_EXPORT
#endif
