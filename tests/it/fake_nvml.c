/* Stands in for NVIDIA's driver library, so that the reading of GPUs is tested on machines
 * without any. Compiled by the test with
 *   -DGPUS=N      so many GPUs, models alternating between two, or
 *   -DINIT=CODE   a library whose start fails with that NVML error code, and
 *   -DUSE="FILE"  a file that says who uses them, read at each question: lines of
 *                 `GPU PID PERCENT`; the process 0 stands for a GPU that tells none apart.
 *                 Without the file the driver does not answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef GPUS
#define GPUS 0
#endif
#ifndef INIT
#define INIT 0
#endif

#ifndef USE
#define USE "/nonexistent"
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };

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

/* The driver counts device files in another order than GPUs on some machines. */
int nvmlDeviceGetMinorNumber(void *device, unsigned int *minor) {
  *minor = (unsigned int)(GPUS - 1 - *(int *)device);
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", *(int *)device);
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  char known[80];
  for (unsigned int index = 0; index < GPUS; index++) {
    nvmlDeviceGetHandleByIndex_v2(index, device);
    nvmlDeviceGetUUID(*device, known, sizeof known);
    if (strcmp(uuid, known) == 0) return SUCCESS;
  }
  return NOT_FOUND;
}

struct sample {
  unsigned int pid;
  unsigned long long time;
  unsigned int sm, memory, encoder, decoder;
};

/* How many lines there are for a GPU, and the lines; -1 without the file. */
static int uses(void *device, struct sample *found, int most, unsigned long long since) {
  FILE *file = fopen(USE, "r");
  int index, count = 0;
  unsigned int pid, percent;
  if (!file) return -1;
  while (count < most && fscanf(file, "%d %u %u", &index, &pid, &percent) == 3) {
    if (index != *(int *)device) continue;
    memset(&found[count], 0, sizeof *found);
    found[count].pid = pid;
    found[count].sm = percent;
    found[count++].time = since + 1;
  }
  fclose(file);
  return count;
}

int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned int *count,
                                    unsigned long long since) {
  struct sample found[64];
  int there = uses(device, found, 64, since);
  if (there < 0) return UNKNOWN;
  if (there == 0) return NOT_FOUND;
  if (found[0].pid == 0) return NOT_SUPPORTED;
  if (!samples || *count < (unsigned int)there) {
    *count = (unsigned int)there;
    return INSUFFICIENT_SIZE;
  }
  memcpy(samples, found, sizeof *found * (size_t)there);
  *count = (unsigned int)there;
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned int *rates) {
  struct sample found[64];
  int there = uses(device, found, 64, 0);
  if (there < 0) return UNKNOWN;
  rates[0] = there ? found[0].sm : 0;
  rates[1] = 0;
  return SUCCESS;
}
