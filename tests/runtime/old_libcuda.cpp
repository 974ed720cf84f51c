// The face of a driver from before CUDA 12.0: it has no cuGetProcAddress_v2.

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
