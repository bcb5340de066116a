/* Rows as the records of batches, and the partitions of keys: see sink/compiled_encoding.py, which calls this.
 *
 * The columns are checked before: they are Arrow's own, and a start and a length lie within their bytes.
 */

#include <string.h>

#include "varints.h"

enum { NO_ROOM = -1 };

static uint8_t *write_field(uint8_t *at, const uint8_t *bytes, int64_t length)
{
    at = write_varint(at, length);
    if (length > 0) {
        memcpy(at, bytes, (size_t)length);
        at += length;
    }
    return at;
}

/* Writes the records of batches one behind the other.
 *
 * A column has its bytes, where each element begins, and its length, -1 for null. Of `headers` an element is a record's
 * number of headers and these; NULL where no record has any. `order` says which row is the n-th, NULL for the rows as they
 * are. Of each batch: `counts` its records, and it gets `batch_ends`, the position behind it, and its timestamps.
 * Gives the position behind the last one, or NO_ROOM where `target` has less than it takes.
 */
int64_t ottla_encode(
    const uint8_t *keys, const int32_t *key_starts, const int64_t *key_lengths,
    const uint8_t *values, const int32_t *value_starts, const int64_t *value_lengths,
    const uint8_t *headers, const int32_t *header_starts, const int64_t *header_lengths,
    const int64_t *timestamps, const int64_t *order, const int64_t *counts, int64_t batch_count,
    uint8_t *target, int64_t room, int64_t *batch_ends, int64_t *base_timestamps, int64_t *max_timestamps)
{
    uint8_t *at = target, *end = target + room;
    int64_t next = 0;
    for (int64_t batch = 0; batch < batch_count; batch++) {
        int64_t base = 0, latest = 0;
        for (int64_t number = 0; number < counts[batch]; number++, next++) {
            int64_t row = order == NULL ? next : order[next];
            int64_t timestamp = timestamps[row], key_length = key_lengths[row], value_length = value_lengths[row];
            if (number == 0)
                base = latest = timestamp;
            else if (timestamp > latest)
                latest = timestamp;
            int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)base);
            int64_t header_length = headers == NULL ? 1 : header_lengths[row];
            int64_t length = 1 + varint_bytes(delta) + varint_bytes(number)
                + varint_bytes(key_length) + (key_length > 0 ? key_length : 0)
                + varint_bytes(value_length) + (value_length > 0 ? value_length : 0) + header_length;
            if (varint_bytes(length) + length > end - at)
                return NO_ROOM;
            at = write_varint(at, length);
            *at++ = 0; /* attributes */
            at = write_varint(at, delta);
            at = write_varint(at, number);
            at = write_field(at, keys + key_starts[row], key_length);
            at = write_field(at, values + value_starts[row], value_length);
            if (headers == NULL) {
                *at++ = 0;
            } else {
                memcpy(at, headers + header_starts[row], (size_t)header_length);
                at += header_length;
            }
        }
        batch_ends[batch] = at - target;
        base_timestamps[batch] = base;
        max_timestamps[batch] = latest;
    }
    return at - target;
}

static uint32_t word_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Utils.murmur2 of Apache Kafka. */
static uint32_t murmur2(const uint8_t *at, int64_t length)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t hashed = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; length -= 4, at += 4) {
        uint32_t word = word_at(at) * m;
        word ^= word >> 24;
        hashed = (hashed * m) ^ (word * m);
    }
    if (length == 3)
        hashed ^= (uint32_t)at[2] << 16;
    if (length >= 2)
        hashed ^= (uint32_t)at[1] << 8;
    if (length >= 1)
        hashed = (hashed ^ at[0]) * m;
    hashed = (hashed ^ (hashed >> 13)) * m;
    return hashed ^ (hashed >> 15);
}

/* The partition of each key octets[start:end] among so many. */
void ottla_partitions_of_keys(
    const uint8_t *octets, const int64_t *starts, const int64_t *ends, int64_t keys, int64_t partitions, int64_t *found)
{
    for (int64_t key = 0; key < keys; key++)
        found[key] = (int64_t)(murmur2(octets + starts[key], ends[key] - starts[key]) & 0x7fffffff) % partitions;
}
