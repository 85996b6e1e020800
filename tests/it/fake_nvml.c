/* Stands in for NVIDIA's driver library, so that the reading of GPUs is tested on machines
 * without any. Compiled by the test with
 *   -DGPUS=N      so many GPUs, models alternating between two, or
 *   -DINIT=CODE   a library whose start fails with that NVML error code. */
#include <stdio.h>

#ifndef GPUS
#define GPUS 0
#endif
#ifndef INIT
#define INIT 0
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 2 };

static int numbers[64];

int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  numbers[index] = (int)index;
  *device = &numbers[index];
  return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
  snprintf(name, length, "NVIDIA %s", *(int *)device % 2 ? "H100 80GB HBM3" : "A100-SXM4-40GB");
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", *(int *)device);
  return SUCCESS;
}
