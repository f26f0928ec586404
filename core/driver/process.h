/* process.h - which process this is; shared with the test kit, which is linked apart.
 *
 * A process id does not always tell a child from its parent: the first process of a container is 1, and so is a child that
 * it makes in a namespace of its own.  A page that the kernel wipes in every child does. */
#ifndef SNIB__PROCESS_H
#define SNIB__PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* since Linux 4.14; other kernels refuse it */
#endif

/* NULL: there is none. */
static inline _Atomic uint32_t *snib__process_page(void)
{
    static _Atomic(_Atomic uint32_t *) page;
    _Atomic uint32_t *known = atomic_load(&page), *made;
    if (known)
        return known;
    made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    if (madvise(made, sizeof *made, MADV_WIPEONFORK) == 0 &&
        atomic_compare_exchange_strong(&page, &known, made))
        return made;
    munmap(made, sizeof *made);
    return known;
}

/* snib__process - the number of this process, never 0: its parent has another one, also if it was made without the handlers
 * of fork().  Where the kernel wipes no page, the number is the process id alone. */
static inline uint64_t snib__process(void)
{
    static _Atomic uint32_t last; /* a child counts on */
    _Atomic uint32_t *page = snib__process_page();
    uint32_t number = 0, next;
    if (page && (number = atomic_load(page)) == 0) {
        next = atomic_fetch_add(&last, 1) + 1;
        number = atomic_compare_exchange_strong(page, &number, next) ? next : number;
    }
    return (uint64_t)number << 32 | (uint32_t)getpid();
}

#endif
