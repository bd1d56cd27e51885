/* The least that a server does for a durable message: receive, write, sync, answer. No protocol, no checks.
 *
 *     floor FILE SYNC     prints the port it listens on, serves one connection, ends with it
 *
 * SYNC 1: fdatasync before the answer; 0: none. FILE is one of FILE_BYTES that was written before, as segments are.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_BYTES = 24, BUFFER_BYTES = 256 << 10, ZEROS_BYTES = 1 << 20, FILE_MIB = 256 };

static void require(int held, const char *what) {
    if (!held) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **words) {
    require(count == 3, "usage: floor FILE SYNC");
    static char zeros[ZEROS_BYTES], buffer[BUFFER_BYTES];
    int file = open(words[1], O_RDWR | O_CREAT, 0600);
    require(file >= 0, words[1]);
    for (int i = 0; i < FILE_MIB; i++)
        require(write(file, zeros, sizeof zeros) == sizeof zeros, "writing zeros");
    require(fsync(file) == 0, "fsync");
    int syncs = atoi(words[2]), on = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    require(bind(listener, (struct sockaddr *)&here, size) == 0 && listen(listener, 1) == 0, "listen");
    require(getsockname(listener, (struct sockaddr *)&here, &size) == 0, "getsockname");
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);
    int connection = accept(listener, NULL, NULL);
    require(connection >= 0, "accept");
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    require(poll >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, connection, &event) == 0, "epoll");
    for (off_t at = 0;;) {
        require(epoll_wait(poll, &event, 1, -1) == 1, "epoll_wait");
        ssize_t received = recv(connection, buffer, sizeof buffer, 0);
        if (received <= 0)
            return 0;
        if (at + received > (off_t)FILE_MIB * ZEROS_BYTES)
            at = 0;
        require(pwrite(file, buffer, received, at) == received, "pwrite");
        at += received;
        require(!syncs || fdatasync(file) == 0, "fdatasync");
        if (send(connection, buffer, ANSWER_BYTES, MSG_NOSIGNAL) < 0)
            return 0;
    }
}
