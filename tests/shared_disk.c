// A disk that many machines share, for files below $DISK_FOLDER and by $DISK_FAULT:
//   late   for two seconds a file is not there for processes other than the one that made it
//   stale  a process's first read of a JSON file fails, as if another machine had replaced it meanwhile
//   slow   it takes a twentieth of a second to open, rename or sync a file
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static unsigned long long mine[4096];  // inodes; they outlive a rename
static int made;

static int is_fault(const char *name) {
    const char *fault = getenv("DISK_FAULT");
    return fault && !strcmp(fault, name);
}

static int is_shared(const char *path) {
    const char *folder = getenv("DISK_FOLDER");
    return path && folder && !strncmp(path, folder, strlen(folder));
}

static int is_hidden(const char *path) {
    struct statx file;
    struct timespec now;
    int error = errno;
    if (!is_fault("late") || !is_shared(path)) return 0;
    if (syscall(SYS_statx, AT_FDCWD, path, 0, STATX_BASIC_STATS | STATX_BTIME, &file)) {
        errno = error;
        return 0;
    }
    for (int i = 0; i < made && i < 4096; i++) if (mine[i] == file.stx_ino) return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    if (!S_ISREG(file.stx_mode) || now.tv_sec - file.stx_btime.tv_sec >= 2) return 0;
    errno = ENOENT;
    return 1;
}

static void remember(int handle) {
    struct statx file;
    if (handle >= 0 && !syscall(SYS_statx, handle, "", AT_EMPTY_PATH, STATX_INO, &file))
        mine[made++ % 4096] = file.stx_ino;
}

static void wait_for_slow_disk(const char *path) {
    if (is_fault("slow") && (!path || is_shared(path))) usleep(50000);
}

static unsigned long long seen[65536];  // hashes of names
static char stale[65536];               // by descriptor

static void make_stale(int handle, const char *path) {
    if (handle < 0 || handle > 65535) return;
    stale[handle] = 0;
    if (!is_fault("stale") || !is_shared(path)) return;
    size_t length = strlen(path);
    if (length < 5 || strcmp(path + length - 5, ".json")) return;
    unsigned long long hash = 5381;
    for (const char *c = path; *c; c++) hash = hash * 33 + (unsigned char)*c;
    if (seen[hash % 65536] != hash) {
        seen[hash % 65536] = hash;
        stale[handle] = 1;
    }
}

ssize_t read(int handle, void *buffer, size_t count) {
    static ssize_t (*real)(int, void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "read");
    if (handle >= 0 && handle < 65536 && stale[handle]) {
        stale[handle] = 0;
        errno = ESTALE;
        return -1;
    }
    return real(handle, buffer, count);
}

int fsync(int handle) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    wait_for_slow_disk(NULL);
    return real(handle);
}

int rename(const char *before, const char *after) {
    static int (*real)(const char *, const char *);
    if (!real) real = dlsym(RTLD_NEXT, "rename");
    wait_for_slow_disk(after);
    return real(before, after);
}

#define OPEN(name) \
int name(const char *path, int flags, ...) { \
    static int (*real)(const char *, int, ...); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
    if (!(flags & O_CREAT) && is_hidden(path)) return -1; \
    wait_for_slow_disk(path); \
    int handle = real(path, flags, mode); \
    if (flags & O_CREAT) remember(handle); \
    make_stale(handle, flags & O_CREAT ? NULL : path); \
    return handle; \
}
#define FOPEN(name) \
FILE *name(const char *path, const char *mode) { \
    static FILE *(*real)(const char *, const char *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    if (mode[0] == 'r' && is_hidden(path)) return NULL; \
    FILE *file = real(path, mode); \
    if (mode[0] != 'r' && file) remember(fileno(file)); \
    return file; \
}
#define STAT(name) \
int late_##name(const char *path, void *buffer) __asm__(#name); \
int late_##name(const char *path, void *buffer) { \
    static int (*real)(const char *, void *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    return is_hidden(path) ? -1 : real(path, buffer); \
}
#define XSTAT(name) \
int name(int version, const char *path, void *buffer) { \
    static int (*real)(int, const char *, void *); \
    if (!real) real = dlsym(RTLD_NEXT, #name); \
    return is_hidden(path) ? -1 : real(version, path, buffer); \
}
// Older C libraries have the last line's names.
OPEN(open) OPEN(open64) FOPEN(fopen) FOPEN(fopen64)
STAT(stat) STAT(stat64) STAT(lstat) STAT(lstat64)
XSTAT(__xstat) XSTAT(__xstat64) XSTAT(__lxstat) XSTAT(__lxstat64)
