/* url.h - the URLs of snib_client_open(): where the servers are, and how to log in. */
#ifndef SNIB__URL_H
#define SNIB__URL_H

#include "net/address.h"
#include "snib.h"

#define SNIB__URL_DEFAULT "redis://127.0.0.1:6379"
#define SNIB__URL_ADDRESSES_MAX 32
#define SNIB__SERVICE_MAX 200 /* bytes of a service's name */

/* All strings are owned, decoded, without control characters; NULL: not given. */
struct snib__url {
    int topology; /* enum snib__topology */
    bool tls;     /* for every connection; each address has it, too */
    bool memory;  /* the server is one of the test kit */
    bool has_database;
    uint32_t addresses_n;
    struct snib__address *addresses; /* the server; the sentinels; cluster nodes to begin with */
    char *service;                   /* SENTINEL: the master's name at the sentinels; else NULL */
    int database;                    /* 0 to 2^31 - 1; CLUSTER: 0 */
    /* the options for logging in and for TLS, see options.def */
    char *username, *password, *password_file;
    char *sentinel_username, *sentinel_password;
    char *tls_ca, *tls_cert, *tls_key, *tls_key_password, *tls_server_name;
    char *label;
    bool tls_insecure;
};

/* snib__url_parse - take a URL apart; free the parts with snib__url_free().
 *
 * given    gets the query's numbers; 0: not given.  The query's texts are in *out.
 * Returns  SNIB_OK, SNIB_EURL, SNIB_EOPTION, SNIB_ELEASE or SNIB_ENOMEM; *out is empty unless
 *          SNIB_OK.  No message quotes the URL, except the name of an unknown option, so none can
 *          show a password. */
int snib__url_parse(const char *url, struct snib__url *out, snib_client_options *given,
                    snib_error *err);

#define SNIB__URL_SERVER (320 + SNIB__SERVICE_MAX)

/* snib__url_server - the server, or the deployment, and the database: the same text in every process.
 *
 * Of several addresses, the first in sort order stands for all, so that their order in the URL does not
 * matter. */
void snib__url_server(const struct snib__url *url, char out[SNIB__URL_SERVER]);

/* snib__url_copy - a deep copy.  Returns SNIB_OK or SNIB_ENOMEM; *out is empty then. */
int snib__url_copy(const struct snib__url *from, struct snib__url *out);

/* snib__url_free - free the parts and wipe them; *url is empty afterwards. */
void snib__url_free(struct snib__url *url);

/* snib__url_wipe - free a string that may be secret; NULL is fine. */
void snib__url_wipe(char *text);

#endif
