/* Writes down what a process does to the files below one folder, in order; and makes syncs fail on request.

   Preloaded (LD_PRELOAD) into the process under test and all that it starts. Each call is made first and
   noted before it returns, so whoever acts on its outcome is noted later. `tests/support/disk_log.py`
   reads the notes and makes from them what a power cut could leave.

   DISK_LOG_ROOT   absolute path of the folder; calls on other paths pass
   DISK_LOG_FILE   where the notes go; must exist; not below the root
   DISK_LOG_FAIL   a file: while it exists, a sync fails with EIO where the path has its text in it

   One note, little-endian:
     kind u8, error u8, lengths of the two paths u16 u16, pad u16, inode u64, offset u64, length u64,
     data bytes u64, then path, second path, data.
   Of a sync `offset` is where the notes ended when it began: it covers what was noted before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct note {
    uint8_t kind, error;
    uint16_t path_size, second_size, pad;
    uint64_t inode, offset, length, data_size;
} __attribute__((packed));

static const char *root, *fail_file;
static size_t root_size;
static int log_fd = -1;

#define REAL(type, name, ...)                                                                  \
    static type (*real)(__VA_ARGS__);                                                          \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name);

static int real_open(const char *path, int flags) {
    REAL(int, "open64", const char *, int, ...)
    return real(path, flags, 0600);
}

static ssize_t real_writev(int fd, const struct iovec *pieces, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int)
    return real(fd, pieces, count);
}

static int ready(void) {
    static int state;
    if (!state) {
        root = getenv("DISK_LOG_ROOT");
        fail_file = getenv("DISK_LOG_FAIL");
        const char *file = getenv("DISK_LOG_FILE");
        root_size = root ? strlen(root) : 0;
        if (file) log_fd = real_open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
        state = root ? 1 : 2;
    }
    return state == 1;
}

static int below(const char *path) {
    return !strncmp(path, root, root_size) && (path[root_size] == '/' || !path[root_size]);
}

/* The absolute path, names of the last component not followed. */
static int absolute(int folder, const char *path, char *found) {
    if (path[0] == '/') {
        snprintf(found, PATH_MAX, "%s", path);
    } else {
        char place[PATH_MAX];
        if (folder == AT_FDCWD) {
            if (!getcwd(place, sizeof place)) return 0;
        } else {
            char name[64];
            snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
            ssize_t size = readlink(name, place, sizeof place - 1);
            if (size < 0) return 0;
            place[size] = 0;
        }
        if (snprintf(found, PATH_MAX, "%s/%s", place, path) >= PATH_MAX) return 0;
    }
    return ready() && below(found);
}

static int path_of(int fd, char *found) {
    if (!ready() || fd == log_fd) return 0;
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, found, PATH_MAX - 1);
    if (size < 0) return 0;
    found[size] = 0;
    return below(found);
}

static uint64_t inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : (uint64_t)status.st_ino;
}

static void note(char kind, int error, const char *path, const char *second, uint64_t inode, uint64_t offset,
                 uint64_t length, const struct iovec *data, int count, uint64_t data_size) {
    if (log_fd < 0) return;
    int kept = errno;
    struct iovec pieces[3 + count];
    struct note head = {kind, error, strlen(path), second ? strlen(second) : 0, 0, inode, offset, length, data_size};
    pieces[0] = (struct iovec){&head, sizeof head};
    pieces[1] = (struct iovec){(void *)path, head.path_size};
    pieces[2] = (struct iovec){(void *)second, head.second_size};
    int used = 3;
    for (int i = 0; i < count && data_size; i++) {
        size_t size = data[i].iov_len < data_size ? data[i].iov_len : data_size;
        pieces[used++] = (struct iovec){data[i].iov_base, size};
        data_size -= size;
    }
    /* One call of O_APPEND: notes of several processes do not mix. */
    size_t whole = 0;
    for (int i = 0; i < used; i++) whole += pieces[i].iov_len;
    if (used > IOV_MAX || real_writev(log_fd, pieces, used) != (ssize_t)whole) abort();
    errno = kept;
}

static uint64_t notes_end(void) {
    struct stat status;
    return log_fd < 0 || fstat(log_fd, &status) ? 0 : (uint64_t)status.st_size;
}

/* -- opening ------------------------------------------------------------------------------------- */

static void opened(int fd, const char *path, int flags, int was_there) {
    if (fd < 0) return;
    if ((flags & O_CREAT) && !was_there) note('C', 0, path, 0, inode_of(fd), 0, 0, 0, 0, 0);
    else if (flags & O_TRUNC) note('T', 0, path, 0, inode_of(fd), 0, 0, 0, 0, 0);
}

#define OPEN_BODY(call)                                                                        \
    mode_t mode = 0;                                                                           \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
        va_list rest;                                                                          \
        va_start(rest, flags);                                                                 \
        mode = va_arg(rest, mode_t);                                                           \
        va_end(rest);                                                                          \
    }                                                                                          \
    char found[PATH_MAX];                                                                      \
    int ours = (flags & (O_CREAT | O_TRUNC)) && absolute(folder, path, found);                 \
    int was_there = ours && !access(found, F_OK);                                              \
    int fd = call;                                                                             \
    if (ours) opened(fd, found, flags, was_there);                                             \
    return fd;

#define OPEN(name)                                                                             \
    int name(const char *path, int flags, ...) {                                               \
        REAL(int, #name, const char *, int, ...)                                               \
        int folder = AT_FDCWD;                                                                 \
        OPEN_BODY(real(path, flags, mode))                                                     \
    }
#define OPENAT(name)                                                                           \
    int name(int folder, const char *path, int flags, ...) {                                   \
        REAL(int, #name, int, const char *, int, ...)                                          \
        OPEN_BODY(real(folder, path, flags, mode))                                             \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

/* -- writing ------------------------------------------------------------------------------------- */

static void written(int fd, const struct iovec *pieces, int count, int64_t offset, ssize_t size) {
    char path[PATH_MAX];
    if (size <= 0 || !path_of(fd, path)) return;
    if (offset < 0) offset = lseek(fd, 0, SEEK_CUR) - size;
    note('W', 0, path, 0, inode_of(fd), offset, size, pieces, count, size);
}

#define WRITE_AT(name, real_name)                                                              \
    ssize_t name(int fd, const void *data, size_t size, off_t offset) {                        \
        REAL(ssize_t, real_name, int, const void *, size_t, off_t)                             \
        ssize_t done = real(fd, data, size, offset);                                           \
        struct iovec piece = {(void *)data, size};                                             \
        written(fd, &piece, 1, offset, done);                                                  \
        return done;                                                                           \
    }
WRITE_AT(pwrite, "pwrite")
WRITE_AT(pwrite64, "pwrite64")

#define WRITEV_AT(name)                                                                        \
    ssize_t name(int fd, const struct iovec *pieces, int count, off_t offset) {                \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t)                            \
        ssize_t done = real(fd, pieces, count, offset);                                        \
        written(fd, pieces, count, offset, done);                                              \
        return done;                                                                           \
    }
WRITEV_AT(pwritev)
WRITEV_AT(pwritev64)

#define WRITEV2_AT(name)                                                                       \
    ssize_t name(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {     \
        REAL(ssize_t, #name, int, const struct iovec *, int, off_t, int)                       \
        ssize_t done = real(fd, pieces, count, offset, flags);                                 \
        written(fd, pieces, count, offset, done);                                              \
        return done;                                                                           \
    }
WRITEV2_AT(pwritev2)
WRITEV2_AT(pwritev64v2)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t)
    ssize_t done = real(fd, data, size);
    struct iovec piece = {(void *)data, size};
    written(fd, &piece, 1, -1, done);
    return done;
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    ssize_t done = real_writev(fd, pieces, count);
    written(fd, pieces, count, -1, done);
    return done;
}

static void sized(char kind, int fd, int64_t length, int result) {
    char path[PATH_MAX];
    if (!result && path_of(fd, path)) note(kind, 0, path, 0, inode_of(fd), 0, length, 0, 0, 0);
}

#define TRUNCATE(name)                                                                         \
    int name(int fd, off_t length) {                                                           \
        REAL(int, #name, int, off_t)                                                           \
        int result = real(fd, length);                                                         \
        sized('T', fd, length, result);                                                        \
        return result;                                                                         \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define ALLOCATE(name)                                                                         \
    int name(int fd, off_t offset, off_t length) {                                             \
        REAL(int, #name, int, off_t, off_t)                                                    \
        int result = real(fd, offset, length);                                                 \
        sized('F', fd, offset + length, result);                                               \
        return result;                                                                         \
    }
ALLOCATE(posix_fallocate)
ALLOCATE(posix_fallocate64)

/* What a replay could not repeat must not pass unseen. */
static void unknown(int fd, const char *what) {
    char path[PATH_MAX];
    if (path_of(fd, path)) note('?', 0, path, what, 0, 0, 0, 0, 0, 0);
}
ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    REAL(ssize_t, "sendfile", int, int, off_t *, size_t)
    unknown(out, "sendfile");
    return real(out, in, offset, size);
}
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off64_t *, int, off64_t *, size_t, unsigned)
    unknown(out, "copy_file_range");
    return real(in, from, out, to, size, flags);
}

/* -- syncing ------------------------------------------------------------------------------------- */

static int must_fail(const char *path) {
    if (!fail_file) return 0;
    int fd = real_open(fail_file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[256];
    ssize_t size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0) return 0;
    text[size] = 0;
    return strstr(path, text) != 0;
}

static int synced(int fd, int (*real)(int)) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return real(fd);
    uint64_t begin = notes_end();
    if (must_fail(path)) {
        note('S', EIO, path, 0, inode_of(fd), begin, 0, 0, 0, 0);
        errno = EIO;
        return -1;
    }
    /* The replay decides what lasts; waiting for a device would only make it slow. */
    if (log_fd >= 0) note('S', 0, path, 0, inode_of(fd), begin, 0, 0, 0, 0);
    else return real(fd);
    return 0;
}

#define SYNC(name)                                                                             \
    int name(int fd) {                                                                         \
        REAL(int, #name, int)                                                                  \
        return synced(fd, real);                                                               \
    }
SYNC(fsync)
SYNC(fdatasync)

/* -- names --------------------------------------------------------------------------------------- */

static void named(char kind, int folder, const char *path, int to_folder, const char *second, int result) {
    char first[PATH_MAX], other[PATH_MAX];
    if (result || !ready() || !absolute(folder, path, first)) return;
    if (second && !absolute(to_folder, second, other)) abort();
    note(kind, 0, first, second ? other : 0, 0, 0, 0, 0, 0, 0);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *)
    int result = real(from, to);
    named('R', AT_FDCWD, from, AT_FDCWD, to, result);
    return result;
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *)
    int result = real(from_folder, from, to_folder, to);
    named('R', from_folder, from, to_folder, to, result);
    return result;
}
int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *)
    int result = real(from, to);
    named('L', AT_FDCWD, from, AT_FDCWD, to, result);
    return result;
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int)
    int result = real(from_folder, from, to_folder, to, flags);
    named('L', from_folder, from, to_folder, to, result);
    return result;
}
int unlink(const char *path) {
    REAL(int, "unlink", const char *)
    int result = real(path);
    named('U', AT_FDCWD, path, 0, 0, result);
    return result;
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int)
    int result = real(folder, path, flags);
    named(flags & AT_REMOVEDIR ? 'X' : 'U', folder, path, 0, 0, result);
    return result;
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t)
    int result = real(path, mode);
    named('M', AT_FDCWD, path, 0, 0, result);
    return result;
}
int mkdirat(int folder, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t)
    int result = real(folder, path, mode);
    named('M', folder, path, 0, 0, result);
    return result;
}
int rmdir(const char *path) {
    REAL(int, "rmdir", const char *)
    int result = real(path);
    named('X', AT_FDCWD, path, 0, 0, result);
    return result;
}
