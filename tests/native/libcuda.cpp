// A driver for two GPUs of compute capability 9.0 that computes nothing and prints what it is asked.
//
// Of what it does not have by name, all succeeds. A cubin that begins with "new" is refused.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

thread_local long current = 0;  // the context: 1000 and the GPU

struct Attribute {
  int id;
  char padding[4];
  unsigned value[16];
};

struct Config {
  unsigned grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
};

int succeed() { return 0; }

}  // namespace

extern "C" {
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 1024, 0;
}
int cuDevicePrimaryCtxRetain(long* context, int device) {
  std::printf("retain %d\n", device);
  return *context = 1000 + device, 0;
}
int cuCtxGetCurrent(long* context) { return *context = current, 0; }
int cuCtxSetCurrent(long context) { return current = context, 0; }
int cuCtxGetDevice(int* device) { return *device = int(current - 1000), current ? 0 : 201; }
int cuLibraryLoadData(long* library, const char* code, void*, void*, unsigned, void*, void*,
                      unsigned) {
  std::printf("load %.3s\n", code);
  return *library = 7, std::strncmp(code, "new", 3) ? 0 : 200;
}
int cuLibraryGetModule(long* module, long) { return *module = 6, current ? 0 : 201; }
int cuLibraryGetKernel(long* kernel, long, const char* name) {
  return *kernel = 8, std::strcmp(name, "known") ? 500 : 0;
}
int cuGetErrorName(int status, const char** text) {
  return *text = status == 200 ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_NOT_FOUND", 0;
}
int cuGetErrorString(int status, const char** text) {
  return *text = status == 200 ? "device kernel image is invalid" : "named symbol not found", 0;
}
int cuLaunchKernelEx(const Config* asked, long kernel, void** arguments, void**) {
  std::printf("launch %ld in %ld, stream %ld, grid %u %u %u, block %u %u %u, shared %u:", kernel,
              current, reinterpret_cast<long>(asked->stream), asked->grid[0], asked->grid[1],
              asked->grid[2], asked->block[0], asked->block[1], asked->block[2], asked->shared);
  std::printf(" %ld %ld %d %lld\n", *static_cast<long*>(arguments[0]),
              *static_cast<long*>(arguments[1]), *static_cast<int*>(arguments[2]),
              *static_cast<long long*>(arguments[3]));
  for (unsigned i = 0; i < asked->count; ++i)
    std::printf("attribute %d: %u %u %u\n", asked->attributes[i].id, asked->attributes[i].value[0],
                asked->attributes[i].value[1], asked->attributes[i].value[2]);
  return current ? 0 : 201;
}
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long, int* status) {
  if (status) *status = 0;
  *function = std::strcmp(name, "cuGetProcAddress") ? dlsym(RTLD_DEFAULT, name) : nullptr;
  if (!*function && !std::strcmp(name, "cuGetProcAddress"))
    *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  if (!*function) *function = reinterpret_cast<void*>(succeed);
  return 0;
}
}
