/* doubt.c - what the engine may conclude when a request has no reply, or a doubtful one.
 *
 *     request                  no reply, the link ended         doubtful error
 *     acquire, transfer        repeated with the same number    the caller is told; undone
 *     acquire of a semaphore   unknown: not repeated            the caller is told; not repeated
 *     release                  repeated; gone means: it worked  the caller is told; repeated
 *     release of a number that repeated; gone means: it was     the caller is told; repeated
 *     another hold has now     released since, or both are lost
 *     release to a semaphore   unknown: not repeated            the caller is told; not repeated
 *     renewal                  not renewed; retried             not renewed; retried
 *     extension                repeated                         the caller is told; as it was
 *     query                    repeated                         the caller is told
 *     change of a number,
 *     force release            unknown: not repeated            the caller is told; not repeated
 *
 * A number belongs to one attempt, so a repeated request finds what its first try has left and
 * nothing else.  A request without a number cannot tell its own first try from another client's: it
 * is sent once.  docs/guarantees.md has the callers' side of this table; tests/unit/doubt.c goes
 * through its cells.
 */
#include "engine/ask.h"
#include "engine/internal.h"

/* A server or a proxy may have said it after the work was done; or a script did a part, and the user
 * may not run the command that came next.  All other errors are refusals: of the command, or by a
 * script that leaves nothing half done. */
bool snib__doubtful(int32_t error, const char *text)
{
    return error == SNIB_ESERVER || (error == SNIB_EPERM && snib__conn_is_half(text));
}

bool snib__sent_once(const struct snib__request *request)
{
    const struct snib__hold *hold = request->subject;
    if (request->kind == SNIB__REQ_ASK)
        return snib__ask_once(request->subject);
    return request->kind != SNIB__REQ_RENEW && (hold->gate->kind->traits & SNIB__UNOWNED);
}
