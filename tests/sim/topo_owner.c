/* topo_owner.c - who holds a name, in the data of a server: the fields of a hash, the text of a string, or
 * the ids of permits, which core/locks/permits.c makes from a client's UUID and a number. */
#include "topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES 16

model_text owner_key(const struct topo_name *name)
{
    return name->family == TOPO_PERMITS ? (model_text){name->taken, name->taken_n}
                                        : (model_text){name->text, name->n};
}

/* The second half of an id is that of the UUID, which ends in the seed, and the number: see process_new. */
static void of_permit(model_text id, char out[OWNER_MAX])
{
    const unsigned char *p = (const unsigned char *)id.p;
    uint64_t half = 0;
    if (id.n != ID_BYTES) {
        topo_fail("the id of a permit has %zu bytes", id.n);
    }
    for (int i = 8; i < ID_BYTES; i++) {
        half = half << 8 | p[i];
    }
    uint64_t seed = topo.seed & 0xffffffffffff;
    snprintf(out, OWNER_MAX, "%02x%02x%02x%02x-0000-8000-8000-%012llx:%llu", p[0], p[1], p[2], p[3],
             (unsigned long long)seed, (unsigned long long)(half ^ (0x8000ULL << 48 | seed)));
}

bool owner_at(model *m, const struct topo_name *name, size_t index, char out[OWNER_MAX],
              uint64_t *out_until)
{
    model_text of = owner_key(name), field, value;
    model_key key;
    static const int types[TOPO_FAMILIES] = {
        [TOPO_MUTEX] = MODEL_HASH, [TOPO_FENCED] = MODEL_HASH,  [TOPO_FAIR] = MODEL_HASH,
        [TOPO_RW] = MODEL_HASH,    [TOPO_PLAIN] = MODEL_STRING, [TOPO_PERMITS] = MODEL_ZSET};
    if (!model_key_find(m, 0, of.p, of.n, &key) || key.type != types[name->family] ||
        !model_field_at(m, 0, of.p, of.n, index, &field, &value)) {
        return false;
    }
    *out_until = UINT64_MAX;
    if (name->family == TOPO_PERMITS) {
        *out_until = strtoull(value.p, NULL, 10) * SNIB__MS;
        of_permit(field, out);
    } else {
        model_text text = name->family == TOPO_PLAIN ? value : field;
        snprintf(out, OWNER_MAX, "%.*s", (int)text.n, text.p);
    }
    return true;
}
