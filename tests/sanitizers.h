#pragma once

// CISTERN_ADDRESS_SANITIZER, CISTERN_THREAD_SANITIZER: 1 in what is compiled for it, else 0. gcc says it by a macro,
// clang by a feature.

#if defined(__has_feature)
#define CISTERN_HAS_FEATURE(feature) __has_feature(feature)
#else
#define CISTERN_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || CISTERN_HAS_FEATURE(address_sanitizer)
#define CISTERN_ADDRESS_SANITIZER 1
#else
#define CISTERN_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || CISTERN_HAS_FEATURE(thread_sanitizer)
#define CISTERN_THREAD_SANITIZER 1
#else
#define CISTERN_THREAD_SANITIZER 0
#endif
