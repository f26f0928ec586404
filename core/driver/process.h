/* process.h - which process this is; shared with the test kit, which is linked apart.
 *
 * A process id does not always tell a child from its parent: the first process of a container is 1, and so is a child that
 * it makes in a namespace of its own.  A page that the kernel wipes in every child does. */
#ifndef SNIB__PROCESS_H
#define SNIB__PROCESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* since Linux 4.14; other kernels refuse it */
#endif

/* If the first call finds no page, none is made later either: the number of a process does not change. */
static inline _Atomic uint32_t *snib__process_page(void)
{
    static _Atomic(_Atomic uint32_t *) page;
    static _Atomic uint32_t none; /* a child has it from its parent: only the process ids differ */
    _Atomic uint32_t *known = atomic_load(&page);
    if (known)
        return known;
    void *made =
        mmap(NULL, sizeof *known, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool wiped = made != MAP_FAILED && madvise(made, sizeof *known, MADV_WIPEONFORK) == 0;
    if (atomic_compare_exchange_strong(&page, &known, wiped ? made : &none))
        known = wiped ? made : &none;
    if (made != MAP_FAILED && made != known)
        munmap(made, sizeof *known);
    return known;
}

/* snib__process - the number of this process, never 0: its parent has another one, also if it was made without the handlers
 * of fork().  Where the kernel wipes no page, the process ids alone tell them apart. */
static inline uint64_t snib__process(void)
{
    static _Atomic uint32_t last; /* a child counts on */
    _Atomic uint32_t *page = snib__process_page();
    uint32_t number = atomic_load(page), next;
    if (number == 0) {
        next = atomic_fetch_add(&last, 1) + 1;
        number = atomic_compare_exchange_strong(page, &number, next) ? next : number;
    }
    return (uint64_t)number << 32 | (uint32_t)getpid();
}

#endif
