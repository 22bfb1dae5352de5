/* Functions that all libraries share. */
#include "peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[512];

const char *peer_message(void)
{
    return message;
}

enum peer_code peer_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return PEER_ERROR;
}

int peer_compare(struct peer_bytes left, struct peer_bytes right)
{
    size_t common = left.size < right.size ? left.size : right.size;
    int order = common == 0 ? 0 : memcmp(left.data, right.data, common);
    if (order != 0)
        return order;
    return (left.size > right.size) - (left.size < right.size);
}
