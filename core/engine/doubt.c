/* doubt.c - what may be concluded when a request has no answer, or one that may mean anything.
 *
 *     request                   no answer, the link ended          error that may mean anything
 *     acquire, transfer         repeated with the same number      the caller is told, and it is undone
 *     acquire of a semaphore    unknown: nothing is repeated       the caller is told, nothing is repeated
 *     release                   repeated; gone means: it did it    the caller is told, and it is repeated
 *     release to a semaphore    unknown: nothing is repeated       the caller is told, nothing is repeated
 *     renewal                   not renewed; it is tried again     not renewed; it is tried again
 *     question                  asked again                        the caller is told
 *     change of a number,
 *     force release             unknown: nothing is repeated       the caller is told, nothing is repeated
 *
 * A number belongs to one attempt, so whoever repeats one finds what its first try has left and nothing
 * else.  What has no number cannot tell its own first try from somebody else's: it is sent once.
 * docs/guarantees.md has the callers' side of this table; tests/unit/doubt.c goes through its cells.
 */
#include "engine/ask.h"
#include "engine/internal.h"

/* A server or a proxy may have said it after the work was done.  All other errors are refusals: of the
 * command, or by a script that leaves nothing half done. */
bool snib__doubtful(int32_t error)
{
    return error == SNIB_ESERVER;
}

bool snib__sent_once(const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_ASK)
        return snib__ask_once(request->subject);
    return request->kind != SNIB__REQ_RENEW && (hold->gate->kind->traits & SNIB__UNOWNED);
}
