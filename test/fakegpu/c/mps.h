// How the fake MPS daemon is talked to: a line there and an answer back over a unix socket in its folder.
#ifndef FAKEGPU_MPS_H
#define FAKEGPU_MPS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/un.h>

#define MPS_JOIN "join" // a process asks to be a client
#define MPS_JOINED "joined"

// mps_address is false where a folder's name is too long for a socket in it.
bool mps_address(const char *folder, struct sockaddr_un *a);
// mps_ask is false where no daemon answers. The answer has no line break at its end.
bool mps_ask(const char *folder, const char *line, char *answer, size_t size);

#endif
