/* Stands in for NVIDIA's driver library, so that the reading of GPUs is tested on machines
 * without any. Compiled by the test with
 *   -DGPUS=N      so many GPUs, models alternating between two, or
 *   -DINIT=CODE   a library whose start fails with that NVML error code, and
 *   -DUSE="FILE"  a file that says who uses them, read at each question: lines of
 *                 `GPU PID PERCENT`; the process 0 stands for a GPU that tells none apart.
 *                 Without the file the driver does not answer.
 *   -DSTATE="FILE" a file that says what they are like, read at each question; lines of
 *                 `gpu N PERCENT USED_MIB CELSIUS WATTS`    what it does
 *                 `process N PID MIB`                       who computes on it
 *                 `ecc N CORRECTED UNCORRECTED`  `retired N PAGES PENDING`  `slow N BITS`
 *                 `energy N JOULES`
 *                 `xid N CODE`    a critical error, which the driver notes once
 *                 `lost N`   it fell off the bus            `hang N`  a question about it hangs
 *                 `mig N SLICES`                            it is cut into slices
 *                 `near A B LEVEL`  `nvlink A B COUNT`      how they are linked
 *                 `links N COUNT`  `linkerrors N COUNT`     how many links it has, and errors of each active one
 *                 `remapped N CORRECTED UNCORRECTED PENDING FAILED`
 *                 `pcie N GENERATION MAX WIDTH MAX`  `clocks N MHZ MAX`
 *                 `slowdown N CELSIUS`  `powerlimit N WATTS DEFAULT` */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef GPUS
#define GPUS 0
#endif
#ifndef INIT
#define INIT 0
#endif
#ifndef USE
#define USE "/nonexistent"
#endif
#ifndef STATE
#define STATE "/nonexistent"
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };

/* A device is its number; a slice is its GPU's number and, from 1 on, its own times SLICE. */
enum { SLICE = 1000 };
static int numbers[GPUS * 8 + 8];

static void *device_of(int gpu, int slice) {
  int *place = &numbers[gpu * 8 + slice];
  *place = gpu + slice * SLICE;
  return place;
}

static int gpu_of(void *device) { return *(int *)device % SLICE; }
static int slice_of(void *device) { return *(int *)device / SLICE; }

/* The numbers behind `word` and a GPU's own number; how many there were, -1 without such a line. */
static int told(const char *word, int gpu, long long *values, int most) {
  FILE *file = fopen(STATE, "r");
  char line[256], first[32];
  int found = -1;
  if (!file) return -1;
  while (found < 0 && fgets(line, sizeof line, file)) {
    int number, offset = 0, step;
    if (sscanf(line, "%31s %d%n", first, &number, &offset) < 2 || strcmp(first, word) || number != gpu) continue;
    for (found = 0; found < most && sscanf(line + offset, " %lld%n", &values[found], &step) == 1; found++) offset += step;
  }
  fclose(file);
  return found;
}

/* Waits while the file says that questions about it hang. */
static int answers(void *device) {
  struct timespec moment = {0, 20000000};
  while (told("hang", gpu_of(device), NULL, 0) >= 0) nanosleep(&moment, NULL);
  return told("lost", gpu_of(device), NULL, 0) >= 0 ? LOST : SUCCESS;
}

/* One number of a line of its own. */
static int number(void *device, const char *word, int place, long long *value) {
  long long values[8];
  int failed = answers(device);
  if (failed) return failed;
  if (told(word, gpu_of(device), values, 8) <= place) return NOT_SUPPORTED;
  *value = values[place];
  return SUCCESS;
}

int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
  snprintf(version, length, "550.1.fake");
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  *device = device_of((int)index, 0);
  return SUCCESS;
}

int nvmlDeviceGetIndex(void *device, unsigned int *index) {
  *index = (unsigned int)gpu_of(device);
  return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned int length) {
  snprintf(name, length, "NVIDIA %s%s", gpu_of(device) % 2 ? "H100 80GB HBM3" : "A100-SXM4-40GB",
           slice_of(device) ? " MIG 1g.5gb" : "");
  return SUCCESS;
}

/* The driver counts device files in another order than GPUs on some machines. */
int nvmlDeviceGetMinorNumber(void *device, unsigned int *minor) {
  *minor = (unsigned int)(GPUS - 1 - gpu_of(device));
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
  if (slice_of(device))
    snprintf(uuid, length, "MIG-00000000-0000-0000-%04d-%012d", slice_of(device), gpu_of(device));
  else
    snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", gpu_of(device));
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  char known[80];
  for (int gpu = 0; gpu < GPUS; gpu++)
    for (int slice = 0; slice < 8; slice++) {
      *device = device_of(gpu, slice);
      nvmlDeviceGetUUID(*device, known, sizeof known);
      if (strcmp(uuid, known) == 0) return answers(*device);
    }
  return NOT_FOUND;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
  long long slices;
  if (told("mig", gpu_of(device), &slices, 1) < 1) return NOT_SUPPORTED;
  *current = *pending = 1;
  return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) {
  (void)device;
  *count = 7;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int index, void **slice) {
  long long slices = 0;
  told("mig", gpu_of(device), &slices, 1);
  if ((long long)index >= slices) return NOT_FOUND;
  *slice = device_of(gpu_of(device), (int)index + 1);
  return SUCCESS;
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
    if (index != gpu_of(device)) continue;
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
  long long percent;
  int there, failed = number(device, "gpu", 0, &percent);
  /* The driver does not measure slices. */
  if (failed == LOST || slice_of(device)) return failed ? failed : NOT_SUPPORTED;
  rates[0] = rates[1] = 0;
  if (!failed) {
    rates[0] = (unsigned int)percent;
    return SUCCESS;
  }
  there = uses(device, found, 64, 0);
  if (there < 0) return UNKNOWN;
  rates[0] = there ? found[0].sm : 0;
  return SUCCESS;
}

struct memory {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
  long long used;
  int failed = number(device, "gpu", 1, &used);
  if (failed) return failed;
  memory->total = 40960ull << 20;
  memory->used = (unsigned long long)used << 20;
  memory->reserved = 0;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned int *celsius) {
  long long value;
  int failed = number(device, "gpu", 2, &value);
  (void)sensor;
  if (!failed) *celsius = (unsigned int)value;
  return failed;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
  long long watts;
  int failed = number(device, "gpu", 3, &watts);
  if (!failed) *milliwatts = (unsigned int)watts * 1000;
  return failed;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  long long joules;
  int failed = number(device, "energy", 0, &joules);
  if (!failed) *millijoules = (unsigned long long)joules * 1000;
  return failed;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned int *milliwatts) {
  long long watts = 400;
  int failed = answers(device);
  if (!failed) told("powerlimit", gpu_of(device), &watts, 1);
  if (!failed) *milliwatts = (unsigned int)watts * 1000;
  return failed;
}

/* One number of a line, as most questions want it. */
static int plain(void *device, const char *word, int place, unsigned int *answer, unsigned int times) {
  long long value;
  int failed = number(device, word, place, &value);
  if (!failed) *answer = (unsigned int)value * times;
  return failed;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned int *milliwatts) {
  return plain(device, "powerlimit", 1, milliwatts, 1000);
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned int *value) { return plain(device, "pcie", 0, value, 1); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned int *value) { return plain(device, "pcie", 1, value, 1); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned int *value) { return plain(device, "pcie", 2, value, 1); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned int *value) { return plain(device, "pcie", 3, value, 1); }

int nvmlDeviceGetClockInfo(void *device, int type, unsigned int *mhz) {
  (void)type;
  return plain(device, "clocks", 0, mhz, 1);
}

int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned int *mhz) {
  (void)type;
  return plain(device, "clocks", 1, mhz, 1);
}

int nvmlDeviceGetTemperatureThreshold(void *device, int type, unsigned int *celsius) {
  (void)type;
  return plain(device, "slowdown", 0, celsius, 1);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 12040;
  return SUCCESS;
}

struct field {
  unsigned int id, scope;
  long long time, latency;
  int type, outcome;
  union {
    double real;
    unsigned int number;
    unsigned long long large;
  } value;
};

enum { FIELD_REMAPPED = 142, UNSIGNED_INT = 1 };

int nvmlDeviceGetFieldValues(void *device, int count, struct field *fields) {
  for (int at = 0; at < count; at++) {
    int place = (int)fields[at].id - FIELD_REMAPPED;
    fields[at].type = UNSIGNED_INT;
    fields[at].outcome = place < 0 || place > 3 ? NOT_SUPPORTED : plain(device, "remapped", place, &fields[at].value.number, 1);
  }
  return SUCCESS;
}

struct process {
  unsigned int pid;
  unsigned long long memory;
  unsigned int instance, compute;
};

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *processes) {
  FILE *file = fopen(STATE, "r");
  char line[256];
  unsigned int found = 0;
  int failed = answers(device);
  if (failed || !file) {
    if (file) fclose(file);
    return failed ? failed : NOT_SUPPORTED;
  }
  while (fgets(line, sizeof line, file)) {
    int gpu;
    unsigned int pid;
    unsigned long long mib;
    if (sscanf(line, "process %d %u %llu", &gpu, &pid, &mib) < 3 || gpu != gpu_of(device)) continue;
    if (processes && found < *count) {
      processes[found].pid = pid;
      processes[found].memory = mib << 20;
      processes[found].instance = processes[found].compute = ~0u;
    }
    found++;
  }
  fclose(file);
  failed = found && (!processes || *count < found) ? INSUFFICIENT_SIZE : SUCCESS;
  *count = found;
  return failed;
}

int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors) {
  long long value;
  int failed = number(device, "ecc", kind, &value);
  (void)counter;
  if (!failed) *errors = (unsigned long long)value;
  return failed;
}

static int retired(void *device, int cause, unsigned int *count) {
  long long value;
  int failed = number(device, "retired", 0, &value);
  if (!failed) *count = cause ? 0 : (unsigned int)value;
  return failed;
}

int nvmlDeviceGetRetiredPages(void *device, int cause, unsigned int *count, unsigned long long *addresses) {
  (void)addresses;
  return retired(device, cause, count);
}

int nvmlDeviceGetRetiredPages_v2(void *device, int cause, unsigned int *count, unsigned long long *addresses,
                                 unsigned long long *times) {
  int failed = retired(device, cause, count);
  for (unsigned int page = 0; !failed && page < *count; page++) addresses[page] = times[page] = page;
  return failed;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending) {
  long long value;
  int failed = number(device, "retired", 1, &value);
  if (!failed) *pending = (int)value;
  return failed;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
  long long value;
  int failed = number(device, "slow", 0, &value);
  if (!failed) *reasons = (unsigned long long)value;
  return failed;
}

struct event {
  void *device;
  unsigned long long type, data;
  unsigned int instance, compute;
};

enum { CRITICAL_XID_ERROR = 8 };
static char watched[GPUS + 1];
static long long noted[GPUS + 1];

int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) {
  *types = slice_of(device) ? 0 : CRITICAL_XID_ERROR;
  return SUCCESS;
}

int nvmlEventSetCreate(void **set) {
  *set = watched;
  return SUCCESS;
}

int nvmlEventSetFree(void *set) {
  (void)set;
  return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)set;
  if (types & CRITICAL_XID_ERROR) watched[gpu_of(device)] = 1;
  return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int milliseconds) {
  (void)set, (void)milliseconds;
  for (int gpu = 0; gpu < GPUS; gpu++) {
    long long code = 0;
    if (!watched[gpu] || told("xid", gpu, &code, 1) < 1) code = 0;
    if (code == noted[gpu]) continue;
    noted[gpu] = code;
    if (code == 0) continue;
    memset(event, 0, sizeof *event);
    event->device = device_of(gpu, 0);
    event->type = CRITICAL_XID_ERROR;
    event->data = (unsigned long long)code;
    return SUCCESS;
  }
  return TIMEOUT;
}

struct pci {
  char legacy[16];
  unsigned int domain, bus, device, id, subsystem;
  char bus_id[32];
};

static void pci_of(int gpu, struct pci *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = (unsigned int)(0x10 + gpu);
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
  pci_of(gpu_of(device), pci);
  return SUCCESS;
}

/* What a file says of a pair, in whichever order; -1 without a line. */
static int pair(const char *word, int one, int other) {
  FILE *file = fopen(STATE, "r");
  char line[256], first[32];
  int a, b, value, found = -1;
  while (file && found < 0 && fgets(line, sizeof line, file))
    if (sscanf(line, "%31s %d %d %d", first, &a, &b, &value) == 4 && !strcmp(first, word) &&
        ((a == one && b == other) || (a == other && b == one)))
      found = value;
  if (file) fclose(file);
  return found;
}

int nvmlDeviceGetTopologyCommonAncestor(void *one, void *other, int *level) {
  int found = pair("near", gpu_of(one), gpu_of(other));
  if (found < 0) return NOT_SUPPORTED;
  *level = found;
  return SUCCESS;
}

/* The GPU at the other end of a link; -1 where the link is not used. */
static int end_of(void *device, int link) {
  for (int other = 0; other < GPUS; other++) {
    int count = other == gpu_of(device) ? 0 : pair("nvlink", gpu_of(device), other);
    if (count > 0 && (link -= count) < 0) return other;
  }
  return -1;
}

int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned int link, int counter, unsigned long long *errors) {
  long long value;
  int failed = number(device, "linkerrors", 0, &value);
  (void)link;
  if (!failed) *errors = counter ? 0 : (unsigned long long)value;
  return failed;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned int link, int *active) {
  long long all;
  if (told("links", gpu_of(device), &all, 1) == 1 && (long long)link >= all) return INVALID_ARGUMENT;
  *active = end_of(device, (int)link) >= 0;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned int link, struct pci *pci) {
  int other = end_of(device, (int)link);
  if (other < 0) return NOT_SUPPORTED;
  pci_of(other, pci);
  return SUCCESS;
}
