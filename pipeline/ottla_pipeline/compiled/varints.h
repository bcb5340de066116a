/* Varints of Apache Kafka's records (ByteUtils): zigzag, 7 bits a byte, the lowest first. */

#ifndef OTTLA_VARINTS_H
#define OTTLA_VARINTS_H

#include <stddef.h>
#include <stdint.h>

enum { INT32_BYTES = 5, INT64_BYTES = 10 }; /* at most so many bytes of each type */

/* Reads the number at `at`, which ends before `limit`. Gives the position behind it, NULL where there is none. */
static inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *limit, int longest, int64_t *value)
{
    uint64_t number = 0;
    for (int read = 0; read < longest && at < limit; read++) {
        uint8_t byte = *at++;
        number |= (uint64_t)(byte & 127) << (7 * read);
        if (byte < 128) {
            *value = (int64_t)((number >> 1) ^ (0 - (number & 1)));
            return at;
        }
    }
    return NULL;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (0 - ((uint64_t)value >> 63));
}

static inline int64_t varint_bytes(int64_t value)
{
    int64_t bytes = 1;
    for (uint64_t number = zigzag(value); number > 127; number >>= 7)
        bytes++;
    return bytes;
}

/* Writes the number; the caller knows that there is room. */
static inline uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t number = zigzag(value);
    for (; number > 127; number >>= 7)
        *at++ = (uint8_t)(number | 128);
    *at++ = (uint8_t)number;
    return at;
}

#endif
