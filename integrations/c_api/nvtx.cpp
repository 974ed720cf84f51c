#include <cistern/c_api.h>
#include <cistern/nvtx.h>

#include "integrations/c_api/status.h"

using cistern::c_api::guarded;
using cistern::c_api::require;
using cistern::c_api::stream_of;

struct cistern_nvtx_domain {
  explicit cistern_nvtx_domain(const char* name) : domain(name) {}
  cistern::nvtx::Domain domain;
};

void cistern_nvtx_mark(const char* message) { cistern::nvtx::mark(message); }
int cistern_nvtx_range_push(const char* message) { return cistern::nvtx::range_push(message); }
int cistern_nvtx_range_pop() { return cistern::nvtx::range_pop(); }

cistern_status cistern_nvtx_name_stream(int device, cistern_stream stream, const char* name) {
  return guarded([&] { cistern::nvtx::name_stream(stream_of(device, stream), name); });
}

cistern_status cistern_nvtx_domain_create(const char* name, cistern_nvtx_domain** domain) {
  return guarded([&] {
    require(domain, "domain");
    *domain = new cistern_nvtx_domain(name);
  });
}

void cistern_nvtx_domain_destroy(cistern_nvtx_domain* domain) { delete domain; }

void cistern_nvtx_domain_mark(const cistern_nvtx_domain* domain, const char* message) { domain->domain.mark(message); }

cistern_status cistern_nvtx_domain_range_push(const cistern_nvtx_domain* domain, const char* message, int* depth) {
  return guarded([&] {
    require(depth, "depth");
    *depth = domain->domain.range_push(message);
  });
}

int cistern_nvtx_domain_range_pop(const cistern_nvtx_domain* domain) { return domain->domain.range_pop(); }
