/*
 * The interface of a library of C for the Rust side: `src/c_engine.rs` mirrors this header, and each `*.c` beside it
 * fills in one `struct peer_library`.
 *
 * A function that returns `enum peer_code` and PEER_ERROR has left a sentence for `peer_message` on its thread. After
 * PEER_CONFLICT or PEER_ERROR within a transaction only `rollback` may follow.
 */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>
#include <stdint.h>

enum peer_code { PEER_OK = 0, PEER_NOT_FOUND = 1, PEER_CONFLICT = 2, PEER_ERROR = 3 };

/* What a commit waits for: nothing, that its log is with the operating system, or with the disk. */
enum peer_durability { PEER_MEMORY = 0, PEER_WRITTEN = 1, PEER_SYNCED = 2 };

/* Borrowed bytes. The pointer of an empty one may be invalid. */
struct peer_bytes {
    const void *data;
    size_t size;
};

struct peer_opening {
    /* A directory that exists. */
    const char *dir;
    const char *const *tables;
    size_t table_count;
    uint64_t cache_bytes;
    /* An `enum peer_durability`. */
    int durability;
    /* Which of the library's engines this is: each file says what its numbers mean. */
    int variant;
};

/* Each library has its own. */
struct peer_store;
struct peer_session;

/* Gets an entry of a scan; returns 0 to end it. */
typedef int (*peer_visit)(void *state, struct peer_bytes key, struct peer_bytes value);

struct peer_library {
    /* The library and its version: `LevelDB 1.23`. */
    const char *(*version)(void);

    /* Opens, or creates, or recovers a database with all its tables. */
    enum peer_code (*open)(const struct peer_opening *opening, struct peer_store **store);
    /* Returns when everything that was committed is durable. */
    enum peer_code (*settle)(struct peer_store *store);
    /* Closes the database when no session is left, and frees the store in any case. */
    enum peer_code (*close)(struct peer_store *store);

    /* A session, which one thread uses. */
    enum peer_code (*session)(struct peer_store *store, struct peer_session **session);
    /* Ends a session, and what is open in it. */
    void (*end_session)(struct peer_session *session);

    /* Begins a transaction; one that does not write ends by `rollback`. */
    enum peer_code (*begin)(struct peer_session *session, int write);
    /* Writes the transaction. After anything but PEER_OK it is undone, and no `rollback` follows. */
    enum peer_code (*commit)(struct peer_session *session);
    void (*rollback)(struct peer_session *session);

    /* Reads a key, in the transaction or outside of any. The value stays valid until the session's next call. */
    enum peer_code (*get)(struct peer_session *session, size_t table, struct peer_bytes key, int for_update,
                          struct peer_bytes *value);
    /* Both only in a transaction that writes; whether the key was there makes no difference. */
    enum peer_code (*put)(struct peer_session *session, size_t table, struct peer_bytes key, struct peer_bytes value);
    enum peer_code (*remove)(struct peer_session *session, size_t table, struct peer_bytes key);
    /*
     * Shows entries from the first that is not below `from` upwards, or, in reverse, from the last that is not above it
     * downwards; from that end of the table if `from` is NULL. In a transaction only; one that is going to write the
     * entries has them locked for that, by a library that locks.
     */
    enum peer_code (*scan)(struct peer_session *session, size_t table, const struct peer_bytes *from, int reverse,
                           int for_update, peer_visit visit, void *state);
};

/* The sentence of the last PEER_ERROR on this thread. */
const char *peer_message(void);

/* Leaves that sentence: `printf` with the operation and the library's message. Returns PEER_ERROR. */
enum peer_code peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Compares as bytes, a shorter key before a longer one that begins with it. */
int peer_compare(struct peer_bytes left, struct peer_bytes right);

#endif
