/* Where the records of batches are, and what their fields are: see reading/compiled_walk.py, which calls this.
 *
 * Every byte comes from the network. A position is compared with the end of its record before it is read, and a length
 * with what is left of it. Where something does not fit, the answer is CORRUPT and nothing that was written counts.
 * Positions are offsets in `data`, which has less than 2 GiB.
 */

#include <string.h>

#include "varints.h"

enum { CORRUPT = -1 };

/* What a batch is described by: a row of int64. */
enum { BEGIN, END, COUNT, BASE_OFFSET, BASE_TIMESTAMP, MAX_TIMESTAMP, HAS_APPEND_TIME, BATCH_FIELDS };

/* A key or value: where it begins, and its bytes, -1 for null. Gives the position behind it, NULL where it does not fit. */
static const uint8_t *read_field(
    const uint8_t *data, const uint8_t *at, const uint8_t *limit, int32_t *begin, int32_t *bytes)
{
    int64_t length;
    at = read_varint(at, limit, INT32_BYTES, &length);
    if (at == NULL || length > limit - at)
        return NULL;
    *begin = (int32_t)(at - data);
    *bytes = length < 0 ? -1 : (int32_t)length;
    return length < 0 ? at : at + length;
}

/* Decodes the records of all batches, and keeps those with first <= offset <= last.
 *
 * Each output has room for as many records as the batches have together. `headers` and `ends` are where the headers of
 * a record begin and where it ends. `totals` gets the bytes of all keys, the number of null keys, and both of values.
 * Gives the number of records that are kept, or CORRUPT.
 */
int64_t ottla_decode(
    const uint8_t *data, const int64_t *batches, int64_t batch_count, int64_t first, int64_t last,
    int64_t *offsets, int64_t *timestamps_us, int32_t *timestamp_types,
    int32_t *key_begin, int32_t *key_bytes, int32_t *value_begin, int32_t *value_bytes,
    int32_t *headers, int32_t *ends, int64_t *totals)
{
    int64_t rows = 0, all_keys = 0, no_keys = 0, all_values = 0, no_values = 0;
    for (const int64_t *batch = batches; batch < batches + batch_count * BATCH_FIELDS; batch += BATCH_FIELDS) {
        const uint8_t *at = data + batch[BEGIN], *batch_end = data + batch[END];
        for (int64_t left = batch[COUNT]; left > 0; left--) {
            int64_t length, timestamp_delta, offset_delta;
            at = read_varint(at, batch_end, INT32_BYTES, &length);
            if (at == NULL || length < 1 || length > batch_end - at)
                return CORRUPT;
            const uint8_t *end = at + length;
            at = read_varint(at + 1, end, INT64_BYTES, &timestamp_delta); /* behind the attributes, which mean nothing */
            if (at == NULL || (at = read_varint(at, end, INT32_BYTES, &offset_delta)) == NULL)
                return CORRUPT;
            at = read_field(data, at, end, &key_begin[rows], &key_bytes[rows]);
            if (at == NULL || (at = read_field(data, at, end, &value_begin[rows], &value_bytes[rows])) == NULL)
                return CORRUPT;
            int64_t offset = (int64_t)((uint64_t)batch[BASE_OFFSET] + (uint64_t)offset_delta);
            if (first <= offset && offset <= last) {
                uint64_t timestamp = batch[HAS_APPEND_TIME]
                    ? (uint64_t)batch[MAX_TIMESTAMP]
                    : (uint64_t)batch[BASE_TIMESTAMP] + (uint64_t)timestamp_delta;
                offsets[rows] = offset;
                timestamps_us[rows] = (int64_t)(timestamp * 1000);
                timestamp_types[rows] = (int32_t)batch[HAS_APPEND_TIME];
                headers[rows] = (int32_t)(at - data);
                ends[rows] = (int32_t)(end - data);
                if (key_bytes[rows] < 0)
                    no_keys++;
                else
                    all_keys += key_bytes[rows];
                if (value_bytes[rows] < 0)
                    no_values++;
                else
                    all_values += value_bytes[rows];
                rows++;
            }
            at = end;
        }
        if (at != batch_end)
            return CORRUPT;
    }
    totals[0] = all_keys;
    totals[1] = no_keys;
    totals[2] = all_values;
    totals[3] = no_values;
    return rows;
}

/* Decodes the headers of records: called without `key_begin` to check and count them, then with outputs that have room
 * for so many. `bounds` gets where the headers of each record begin among all, and one more. Gives their number, or
 * CORRUPT. */
int64_t ottla_decode_headers(
    const uint8_t *data, const int32_t *headers, const int32_t *ends, int64_t rows,
    int64_t *bounds, int32_t *key_begin, int32_t *key_bytes, int32_t *value_begin, int32_t *value_bytes, int64_t *totals)
{
    int64_t found = 0, all_keys = 0, all_values = 0, no_values = 0;
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *at = data + headers[row], *end = data + ends[row];
        int64_t count;
        bounds[row] = found;
        at = read_varint(at, end, INT32_BYTES, &count);
        if (at == NULL || count < 0)
            return CORRUPT;
        for (; count > 0; count--) {
            int32_t one_key_begin, one_key_bytes, one_value_begin, one_value_bytes;
            at = read_field(data, at, end, &one_key_begin, &one_key_bytes);
            if (at == NULL || one_key_bytes < 0) /* a header has a key */
                return CORRUPT;
            if ((at = read_field(data, at, end, &one_value_begin, &one_value_bytes)) == NULL)
                return CORRUPT;
            if (key_begin != NULL) {
                key_begin[found] = one_key_begin;
                key_bytes[found] = one_key_bytes;
                value_begin[found] = one_value_begin;
                value_bytes[found] = one_value_bytes;
                all_keys += one_key_bytes;
                if (one_value_bytes < 0)
                    no_values++;
                else
                    all_values += one_value_bytes;
            }
            found++;
        }
        if (at != end)
            return CORRUPT;
    }
    bounds[rows] = found;
    totals[0] = all_keys;
    totals[1] = 0;
    totals[2] = all_values;
    totals[3] = no_values;
    return found;
}

/* Copies pieces of `data` one behind the other into `target`, which has room for all. `bounds` gets where each begins,
 * and one more; a piece of -1 bytes is null and has no bit in `validity`, which is all zero, and NULL where no piece is
 * null. */
void ottla_gather(
    const uint8_t *data, const int32_t *begin, const int32_t *bytes, int64_t rows,
    int32_t *bounds, uint8_t *target, uint8_t *validity)
{
    int32_t filled = 0;
    for (int64_t row = 0; row < rows; row++) {
        bounds[row] = filled;
        if (bytes[row] < 0)
            continue;
        if (validity != NULL)
            validity[row >> 3] |= (uint8_t)(1 << (row & 7));
        if (bytes[row] > 0)
            memcpy(target + filled, data + begin[row], (size_t)bytes[row]);
        filled += bytes[row];
    }
    bounds[rows] = filled;
}
