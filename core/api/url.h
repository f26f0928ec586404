/* url.h - the URLs of snib_client_open(). */
#ifndef SNIB__URL_H
#define SNIB__URL_H

#include "snib.h"

struct snib__url {
    int is_unix;
    char *host;     /* redis://: name or address, without brackets; else NULL */
    int port;       /* redis://: 1 to 65535 */
    char *path;     /* unix://: absolute, fits sockaddr_un; else NULL */
    char *username; /* decoded; NULL if there is none */
    char *password; /* decoded; NULL if there is none */
    int database;   /* 0 to 2^31 - 1 */
};

/* snib__url_parse - take a URL apart; free the parts with snib__url_free().
 *
 * Returns SNIB_OK, SNIB_EURL, SNIB_ENOTSUP or SNIB_ENOMEM; *out is empty unless SNIB_OK.  No
 * message quotes the URL, so none can show a password. */
int snib__url_parse(const char *url, struct snib__url *out, snib_error *err);

/* snib__url_copy - the same again.  Returns SNIB_OK or SNIB_ENOMEM; *out is empty then. */
int snib__url_copy(const struct snib__url *from, struct snib__url *out);

/* snib__url_free - free the parts and wipe the password; *url is empty afterwards. */
void snib__url_free(struct snib__url *url);

#endif
